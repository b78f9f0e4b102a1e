"""A conversation is written as the target's template wants it; a template is a foreign program."""

import re

import pytest

from dspark_cli.chat import RESERVED, ChatOptions, parse_variables, render_chat
from dspark_cli.errors import DsparkError, UsageError

CHATML = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def rendered(own: str | None, user: str = "Hi", **options: object) -> str:
    """The prompt that a model with its ``own`` template gets."""
    return render_chat(user, ChatOptions(**options), template=own, bos="<s>", eos="</s>")


def complaint(own: str | None, **options: object) -> str:
    """The one sentence with which a template is refused."""
    with pytest.raises(DsparkError) as refused:
        rendered(own, **options)
    (message,) = refused.value.messages
    assert "\n" not in message
    return message


# --- what is written ----------------------------------------------------------------------------


def test_a_question_ends_where_the_answer_begins():
    """The template is asked for the assistant's turn."""
    assert rendered(CHATML) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_system_message_comes_first():
    """Before the user's, in its own turn."""
    assert rendered(CHATML, system="Be brief.").startswith(
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    )


def test_an_empty_system_message_is_a_message():
    """Some templates put their own where there is none; an empty one says: none."""
    assert rendered("{{ messages | length }}{{ messages[0].role }}", system="") == "2system"


def test_the_user_s_text_is_no_template():
    """Nor markup of any other kind: it stands as it was typed."""
    user = "{{ 7 * 7 }} {% raw %} [b]<|im_end|>\n 日本"

    assert rendered("{{ messages[0].content }}|", user) == user + "|"


def test_a_template_knows_the_model_s_own_marks():
    """As texts, the way Transformers hands them over."""
    assert rendered("{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}") == "<s>Hi</s>"


def test_a_template_gets_the_user_s_variables():
    """--chat-template-kwargs, of any JSON type."""
    template = "{{ names | join(',') }} {{ depth + 1 }} {{ 'yes' if loud else 'no' }}"

    variables = {"names": ["a", "b"], "depth": 2, "loud": True}
    assert rendered(template, variables=variables) == "a,b 3 yes"


@pytest.mark.parametrize(
    ("no_thinking", "prompt"), [(False, "<think>"), (True, "<think></think>")]
)
def test_no_thinking_is_a_variable_that_templates_ask_for(no_thinking, prompt):
    """A template that never heard of it answers as always."""
    template = (
        "<think>{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}"
    )
    variables = parse_variables(None, no_thinking=no_thinking)

    assert rendered(template, variables=variables) == prompt
    assert rendered(CHATML, variables=variables) == rendered(CHATML)


def test_a_given_template_is_used_instead_of_the_model_s():
    """Its text as it stands; the model may as well have none."""
    given = "日本: {{ messages[0].content }}."

    assert rendered(CHATML, template=given) == "日本: Hi."
    assert rendered(None, template=given) == "日本: Hi."


# --- variables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "no_thinking", "variables"),
    [
        (None, False, {}),
        (None, True, {"enable_thinking": False}),
        ("{}", False, {}),
        ('{"a": [1, null]}', False, {"a": [1, None]}),
        ('{"a": 1}', True, {"enable_thinking": False, "a": 1}),
        ('{"enable_thinking": true}', True, {"enable_thinking": True}),
    ],
)
def test_variables_are_a_json_object(text, no_thinking, variables):
    """What is spelled out there has the last word."""
    assert parse_variables(text, no_thinking=no_thinking) == variables


@pytest.mark.parametrize("text", ["[1]", '"enable_thinking"', "5", "null", "true"])
def test_variables_that_are_no_object_are_refused(text):
    """A list has no names."""
    sentence = f"--chat-template-kwargs wants a JSON object, got {text}"
    with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
        parse_variables(text, no_thinking=False)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_variables_that_are_not_the_user_s_are_refused_by_name(name):
    """Before anything is loaded."""
    with pytest.raises(UsageError, match=f": {name} is dspark's to give$"):
        parse_variables(f'{{"{name}": 1, "mine": 2}}', no_thinking=False)


@pytest.mark.parametrize("text", ["", "{", "enable_thinking=false", "{'a': 1}"])
def test_variables_that_are_no_json_are_refused(text):
    """With the column where it stops being JSON."""
    with pytest.raises(UsageError, match=r"^--chat-template-kwargs is no JSON: .* at column \d+$"):
        parse_variables(text, no_thinking=False)


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("template", [None, ""])
def test_a_target_without_a_template_is_refused(template):
    """With a way out; nothing is guessed."""
    with pytest.raises(DsparkError, match="carries no chat template") as refused:
        rendered(template)
    assert "--chat-template-file" in refused.value.hint


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['__builtins__'] }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(template):
    """It comes with a downloaded model: Python's insides are none of its business."""
    assert complaint(template).startswith("the chat template failed: SecurityError: ")


@pytest.mark.parametrize(
    "template", ["{{ messages.append(1) }}", "{{ messages[0].update({'role': 'system'}) }}"]
)
def test_a_template_cannot_change_the_conversation(template):
    """The sandbox is the immutable one."""
    assert complaint(template).startswith("the chat template failed: SecurityError: ")


def test_a_template_s_own_complaint_is_shown():
    """Many refuse a conversation they were not made for, and say why."""
    template = "{{ raise_exception('System role not supported') }}"

    assert complaint(template) == "the chat template failed: ValueError: System role not supported"


@pytest.mark.parametrize(
    "template",
    [
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
        "{% macro a(f) %}{{ f(f) }}{% endmacro %}{{ a(a) }}",
    ],
)
def test_a_template_without_end_is_refused(template):
    """It runs out of stack, and the run is explained, not a traceback."""
    assert complaint(template) == "the chat template failed: it never ends"


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ messages[0].content", "TemplateSyntaxError"),
        ("\n\n{% nonsense %}", "TemplateSyntaxError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ nobody.anything }}", "UndefinedError"),
        ("{{ messages + 'text' }}", "TypeError"),
        ("{% for _ in range(10 ** 9) %}{% endfor %}", "OverflowError"),
        ("{% include 'other.jinja' %}", "TemplateNotFound"),
    ],
)
def test_whatever_goes_wrong_in_a_template_is_one_sentence(template, kind):
    """The kind of failure, and the template engine's own words."""
    assert complaint(template).startswith(f"the chat template failed: {kind}: ")


@pytest.mark.parametrize("name", ["messages", "bos_token", "raise_exception"])
def test_a_variable_cannot_take_the_place_of_the_conversation(name):
    """Such a clash is refused by name rather than settled in silence."""
    assert name in complaint(CHATML, variables={name: "mine"})
