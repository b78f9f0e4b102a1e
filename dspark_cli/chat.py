"""A conversation as the target's own chat template writes it.

A template comes with the model and is somebody else's program: it runs in jinja2's immutable
sandbox, through llama-cpp-python's formatter, which keeps to the environment that Transformers
gives its templates.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from dspark_cli.errors import DsparkError, UsageError

# Variables that the formatter sets itself, and the name that Python gives the formatter.
RESERVED = {"self", "messages", "bos_token", "eos_token", "raise_exception", "strftime_now"}


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """What surrounds the user's text."""

    system: str | None = None
    template: str | None = None  # instead of the one in the GGUF
    variables: dict[str, Any] = field(default_factory=dict)  # handed to the template


def parse_variables(text: str | None, *, no_thinking: bool) -> dict[str, Any]:
    """``--chat-template-kwargs`` as a dictionary, with ``--no-thinking`` folded in."""
    variables: dict[str, Any] = {"enable_thinking": False} if no_thinking else {}
    if text is None:
        return variables
    try:
        given = json.loads(text)
    except RecursionError:
        raise UsageError("--chat-template-kwargs is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"--chat-template-kwargs is no JSON: {error.msg} at column {error.colno}"
        ) from None
    if not isinstance(given, dict):
        raise UsageError(f"--chat-template-kwargs wants a JSON object, got {text}")
    if taken := RESERVED & given.keys():
        raise UsageError(f"--chat-template-kwargs: {', '.join(sorted(taken))} is dspark's to give")
    return variables | given


def render_chat(
    user: str, options: ChatOptions, *, template: str | None, bos: str, eos: str
) -> str:
    """The prompt that asks for the assistant's answer to ``user``.

    Raises DsparkError with the template's own complaint, whatever went wrong inside it.
    """
    template = template if options.template is None else options.template
    if not template:
        raise DsparkError(
            "the target carries no chat template",
            hint="give one with --chat-template-file, or leave --chat out",
        )
    # llama.cpp is loaded by now; the import costs nothing more.
    from jinja2 import TemplateSyntaxError
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    messages = [{"role": "user", "content": user}]
    if options.system is not None:
        messages.insert(0, {"role": "system", "content": options.system})
    variables = dict(options.variables)
    answer = bool(variables.pop("add_generation_prompt", True))
    try:
        formatter = Jinja2ChatFormatter(template, eos, bos, add_generation_prompt=answer)
        return str(formatter(messages=messages, **variables).prompt)
    except RecursionError:
        raise DsparkError("the chat template failed: it never ends") from None
    except Exception as error:  # noqa: BLE001  a foreign program may raise anything
        complaint = " ".join(str(error).split())
        where = f" (line {error.lineno})" if isinstance(error, TemplateSyntaxError) else ""
        raise DsparkError(
            f"the chat template failed: {type(error).__name__}: {complaint}{where}"
        ) from None
