"""An endless supply of small texts: stories, sums, code, and a little of other languages.

Every sentence is of our own invention. A text is drawn from a seeded grammar: a story picks its
hero, friends, things and places once and then keeps to them, a sum is right, a function does what
its examples say. Names come back, refrains repeat, lists count on; so much of a text follows from
what stands before, which a small model can learn and a smaller drafter can guess.

This module knows text and chance; it knows nothing of tokens or models.

    python grammar.py 7    # print some texts of seed 7
"""

# ruff: noqa: RUF001 - letters of other alphabets that look like ours are meant

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """Seeded choices, in the words of somebody telling a story."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - repeatable, and no secret

    def pick(self, things: Sequence[T]) -> T:
        return self._random.choice(things)

    def some(self, things: Sequence[T], count: int) -> list[T]:
        """Pick ``count`` different things."""
        return self._random.sample(things, count)

    def weighted(self, things: dict[T, float]) -> T:
        return self._random.choices(list(things), list(things.values()))[0]

    def number(self, low: int, high: int) -> int:
        """Pick a whole number, both ends included."""
        return self._random.randint(low, high)

    def happens(self, share: float) -> bool:
        return self._random.random() < share


def texts(seed: int) -> Iterator[str]:
    """Tell texts without end; the same seed tells the same ones."""
    chance = Chance(seed)
    while True:
        yield chance.weighted(KINDS)(chance)


# --- words --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Character:
    """Somebody in a story, with the words that stand for them."""

    name: str
    kind: str
    they: str
    them: str
    their: str

    @property
    def they_first(self) -> str:
        return self.they.capitalize()


GIRLS = ("Mira", "Luna", "Ida", "Nora", "Pia", "Tilda", "Rosa", "Wanda", "Zoë", "Lotte", "Maja")
BOYS = ("Tom", "Otto", "Finn", "Emil", "Hugo", "Bruno", "Theo", "Jonas", "Milo", "René", "Jürgen")
ANIMALS = (
    *("fox", "rabbit", "hedgehog", "mouse", "bear", "squirrel", "badger", "duck", "frog"),
    *("goat", "robot", "dragon", "snail", "cat", "donkey", "beaver"),
)
TRAITS = ("curious", "brave", "shy", "cheerful", "clever", "patient", "sleepy", "kind", "quiet")
HOMES = (
    "a little house by the river",
    "a warm den under the old oak",
    "a blue tent at the edge of the forest",
    "a tall tower on the hill",
    "a small village by the sea",
    "a round hut in the meadow",
    "a windmill behind the garden",
    "a cabin beside the frozen lake",
    "a boat that never left the harbour",
)
COLOURS = ("red", "blue", "green", "yellow", "white", "silver", "golden", "purple")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
COUNT = (
    *("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
)


def cast(chance: Chance, count: int) -> list[Character]:
    """Choose characters of different names and kinds."""
    kinds = chance.some(ANIMALS, count)
    girls, boys = chance.some(GIRLS, count), chance.some(BOYS, count)
    return [
        Character(girl, kind, "she", "her", "her")
        if chance.happens(0.5)
        else Character(boy, kind, "he", "him", "his")
        for kind, girl, boy in zip(kinds, girls, boys, strict=True)
    ]


def listed(things: Sequence[str]) -> str:
    """Join with commas and one and."""
    *most, last = things
    return f"{', '.join(most)} and {last}" if most else last


def paragraphs(*parts: str) -> str:
    return "\n\n".join(parts)


def first_upper(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


# --- stories ------------------------------------------------------------------------------------


def opening(chance: Chance, hero: Character) -> str:
    trait, home = chance.pick(TRAITS), chance.pick(HOMES)
    begin = chance.weighted(
        {
            f"Once upon a time, there was a {trait} little {hero.kind} named {hero.name}.": 6,
            f"Once upon a time, a {trait} {hero.kind} named {hero.name} lived in {home}.": 3,
            f"Long ago, there was a {trait} little {hero.kind} named {hero.name}.": 1,
            f"There once was a {hero.kind} named {hero.name}, as {trait} as can be.": 1,
            f"This is the story of {hero.name}, a {trait} little {hero.kind}.": 1,
        }
    )
    if home in begin:
        return begin
    lived = chance.pick((f"{hero.name} lived in {home}.", f"{hero.they_first} lived in {home}."))
    return f"{begin} {lived}"


def ending(chance: Chance, hero: Character, friend: Character) -> str:
    both = f"{hero.name} and {friend.name}"
    last = chance.pick(
        (
            f"And from that day on, {both} were the best of friends.",
            f"{both} laughed until the moon came up. Then they went home and slept well.",
            f"{both} sat side by side and watched the stars. It had been a very good day.",
            (
                f'"Thank you, {friend.name}," said {hero.name}. "Any time, {hero.name}," said '
                f"{friend.name}."
            ),
            f"That night {hero.name} fell asleep with a smile, and so did {friend.name}.",
        )
    )
    return f"{last} The end." if chance.happens(0.3) else last


# What was lost, why it is missed, and what happens once it is back.
TREASURES = (
    ("scarf", "the wind was cold", "was warm again"),
    ("kite", "the wind was just right for flying", "flew it high above the hill"),
    ("lamp", "the night was very dark", "had light to read by"),
    ("key", "the garden gate was locked", "opened the garden gate"),
    ("bell", "it was time to call everyone to supper", "rang it three times"),
    ("boat", "the pond was calm and bright", "sailed it across the pond"),
    ("drum", "the feast was about to begin", "played it at the feast"),
    ("hat", "the sun was hot", "had shade again"),
    ("spoon", "the soup was getting cold", "ate the soup while it was hot"),
    ("umbrella", "it was going to rain", "stayed dry in the rain"),
)
SPOTS = (
    *("under the bed", "behind the door", "in the garden", "on the shelf", "by the well"),
    *("beside the stove", "in the kitchen", "behind the barn", "under the bridge"),
    *("on the roof", "in the old tree"),
)
FINDS = (
    *("a sleeping cat", "a spider", "a pair of dusty boots", "an empty jar", "a pile of leaves"),
    *("a broken cup", "a very old cheese", "a long feather"),
)


def search_story(chance: Chance) -> str:
    hero, friend = cast(chance, 2)
    thing, missed, back = chance.pick(TREASURES)
    thing_name = f"{chance.pick(COLOURS)} {thing}"
    *looked, there = chance.some(SPOTS, 4)
    finds = chance.some(FINDS, 3)
    looking = " ".join(
        f"{hero.name} looked {spot}. There was {find}, but no {thing}."
        for spot, find in zip(looked, finds, strict=True)
    )
    reason = chance.pick(
        (
            "The wind had carried it there.",
            f"{friend.name} had put it there to keep it safe.",
            f"{hero.name} had left it there the day before.",
        )
    )
    return paragraphs(
        f"{opening(chance, hero)} One day {hero.name} could not find {hero.their} {thing_name}, "
        f"and {missed}.",
        looking,
        f'"What are you looking for?" asked {friend.name} the {friend.kind}. "I am looking for my '
        f'{thing_name}," said {hero.name}. "I have looked {listed(looked)}, but I cannot find '
        f'it." "Then let us look together," said {friend.name}.',
        f"They looked {there}, and there it was! {reason} {hero.name} took the {thing_name} and "
        f"{back}. {ending(chance, hero, friend)}",
    )


GOALS = (
    ("the sea", "to hear the waves"),
    ("the top of the mountain", "to touch the clouds"),
    ("the market", "to buy some honey"),
    ("the big city", "to see the lights"),
    ("the end of the rainbow", "to see what is there"),
    ("the old castle", "to dance in the hall"),
    ("the moon", "to ask it for a song"),
)


def journey_story(chance: Chance) -> str:
    hero, *friends = cast(chance, chance.number(3, 4))
    goal, why = chance.pick(GOALS)
    steps = chance.pick(("Step by step", "Up and down", "Over the hills", "Singing all the way"))
    parts = [
        (
            f"{opening(chance, hero)} One morning {hero.name} packed some bread and set out for "
            f"{goal}. {steps}, on {hero.they} went."
        )
    ]
    for together, friend in enumerate(friends, 2):
        parts.append(
            f'Soon {hero.name} met {friend.name} the {friend.kind}. "Where are you going?" asked '
            f'{friend.name}. "I am going to {goal} {why}," said {hero.name}. "May I come with '
            f'you?" "Yes, come along!" And so they were {COUNT[together]}. {steps}, on they went.'
        )
    names = listed([hero.name, *(friend.name for friend in friends)])
    parts.append(
        f"At last they came to {goal}. {names} shared the bread and were happy. "
        + chance.pick(
            (
                '"The way was long," they said, "but it was short with friends."',
                f'"Let us come back tomorrow," said {hero.name}, and they did.',
                "Then they went home, step by step, under the evening star.",
            )
        )
    )
    return paragraphs(*parts)


STUCK = (
    ("cart", "stuck in the mud"),
    ("boat", "stuck in the sand"),
    ("turnip", "deep in the ground"),
    ("door", "frozen shut"),
    ("log", "lying across the road"),
)


def pulling_story(chance: Chance) -> str:
    hero, *friends = cast(chance, chance.number(3, 4))
    thing, how = chance.pick(STUCK)
    parts = [
        (
            f"{opening(chance, hero)} One day {hero.name} found a big {thing}, {how}. {hero.name} "
            f"pulled and pulled, but the {thing} did not move."
        )
    ]
    chain = f"{hero.name} pulled the {thing}"
    front = hero
    for friend in friends:
        chain = f"{friend.name} pulled {front.name}, {chain}"
        front = friend
        last = friend is friends[-1]
        parts.append(
            f'"Come and help me!" called {hero.name}. So {friend.name} the {friend.kind} came to '
            f"help. {chain}. They pulled and pulled, "
            + (f"and out came the {thing}!" if last else f"but the {thing} did not move.")
        )
    parts.append(
        chance.pick(
            (
                f"They all fell over and laughed. {ending(chance, hero, friends[-1])}",
                f'"Together we are strong," said {hero.name}. {ending(chance, hero, friends[0])}',
            )
        )
    )
    return paragraphs(*parts)


PLANTS = (
    ("sunflower", "seed", "so tall that it looked over the roof"),
    ("pumpkin", "seed", "so big that nobody could lift it"),
    ("apple tree", "seed", "full of sweet red apples"),
    ("rose", "seed", "so lovely that the bees came singing"),
    ("bean", "bean", "so long that it reached the clouds"),
)


def garden_story(chance: Chance) -> str:
    hero, friend = cast(chance, 2)
    plant, seed, wonder = chance.pick(PLANTS)
    day = chance.number(0, 6)
    days = [DAYS[(day + later) % 7] for later in range(chance.number(3, 5))]
    grown = ("a green tip", "one leaf", "two leaves", "a bud")
    waiting = [
        f"On {days[0]} {hero.name} watered the {seed}. Nothing happened.",
        *(
            f"On {name} {hero.name} watered the {seed}. There was {size}!"
            for name, size in zip(days[1:], grown, strict=False)
        ),
    ]
    return paragraphs(
        f"{opening(chance, hero)} One day {friend.name} the {friend.kind} gave {hero.them} a tiny "
        f'{seed}. "Water it every day," said {friend.name}, "and wait." '
        f"So {hero.name} put the {seed} into the ground.",
        " ".join(waiting),
        f"{hero.name} waited and waited. And one morning there stood a {plant}, {wonder}! "
        f'"You were patient," said {friend.name}. {ending(chance, hero, friend)}',
    )


HANGING = (
    ("lantern", "hung on the line", "The wind took one away"),
    ("bird", "sat on the fence", "One flew away"),
    ("cookie", "lay on the plate", "Somebody ate one"),
    ("candle", "stood on the table", "One went out"),
    ("frog", "sat on a log", "One jumped into the pond"),
    ("balloon", "floated over the tent", "One went pop"),
)


def countdown_story(chance: Chance) -> str:
    things, where, gone = chance.pick(HANGING)
    colour = chance.pick(COLOURS)
    start = chance.number(4, 8)
    verses = []
    for left in range(start, 0, -1):
        many = f"{COUNT[left]} {colour} {things}{'s' if left > 1 else ''}"
        fewer = {0: "there were none", 1: "there was one"}.get(
            left - 1, f"there were {COUNT[left - 1]}"
        )
        verses.append(f"{first_upper(many)} {where}. {gone}, and then {fewer}.")
    last = chance.pick(
        (
            f"No {colour} {things}s {where}. Good night, {colour} {things}s!",
            f"But tomorrow there will be {COUNT[start]} again.",
            f"Where did they go? Only the {chance.pick(ANIMALS)} knows.",
        )
    )
    return "\n".join([*verses, last])


NOISES = (
    ("Tap, tap, tap", "the rain on the window"),
    ("Whoo, whoo", "the owl in the old oak"),
    ("Creak, creak", "the door in the wind"),
    ("Plip, plop", "a drop falling into the bucket"),
    ("Scratch, scratch", "a mouse behind the wall"),
    ("Tick, tock", "the clock in the hall"),
    ("Rumble, rumble", "the thunder behind the hills"),
    ("Crunch, crunch", "somebody eating an apple"),
)


def night_story(chance: Chance) -> str:
    hero, friend = cast(chance, 2)
    noises = chance.some(NOISES, 3)
    parts = [
        (
            f"{opening(chance, hero)} One dark night {hero.name} could not sleep. "
            f"{hero.they_first} asked {friend.name} the {friend.kind} to stay."
        )
    ]
    parts += [
        f'{sound}! "What was that?" whispered {hero.name}. "It is only {source}," said '
        f'{friend.name}. "Go to sleep, {hero.name}."'
        for sound, source in noises
    ]
    sounds = listed([f"{sound[:1].lower()}{sound[1:]}" for sound, _ in noises])
    parts.append(
        chance.pick(
            (
                (
                    f'Then it was quiet. "What was that?" asked {friend.name}. But {hero.name} '
                    "was already asleep."
                ),
                (
                    f"Now {hero.name} knew them all: {sounds}. The night was full of friends, and "
                    f"{hero.they} slept until morning."
                ),
            )
        )
    )
    return paragraphs(*parts)


CAKES = (
    ("an apple cake", ("apples", "flour", "sugar", "butter")),
    ("a honey cake", ("honey", "flour", "eggs", "milk")),
    ("a pot of soup", ("carrots", "water", "salt", "onions")),
    ("a cherry pie", ("cherries", "flour", "butter", "sugar")),
    ("a crème brûlée", ("cream", "sugar", "eggs", "vanilla")),
)


def baking_story(chance: Chance) -> str:
    hero, *friends = cast(chance, 4)
    dish, needs = chance.pick(CAKES)
    short = dish.split(" ", 1)[1]
    have, *lacking = chance.some(needs, 4)
    parts = [
        (
            f"{opening(chance, hero)} One day {hero.name} wanted to make {dish}. "
            f"{hero.they_first} had {have}, but {hero.they} had no "
            f"{', no '.join(lacking[:-1])} and no {lacking[-1]}."
        )
    ]
    parts.append(
        "\n".join(
            f'{hero.name} went to {friend.name} the {friend.kind}. "May I have some {need}?" "Of '
            f'course," said {friend.name}, "if I may have a piece of the {short}."'
            for friend, need in zip(friends, lacking, strict=True)
        )
    )
    shares = listed([f"one piece for {friend.name}" for friend in friends])
    parts.append(
        f"So {hero.name} took the {listed([have, *lacking])} and made {dish}. There was {shares}. "
        + chance.pick(
            (
                f"And the last piece was for {hero.name}, and it was the best of all.",
                f'"And what about you?" they asked. So each of them gave {hero.name} a bite.',
            )
        )
    )
    return paragraphs(*parts)


PLANS = (
    ("the apples are ripe", "pick apples", "the basket"),
    ("the lake is frozen", "go skating", "the hot tea"),
    ("the snow is deep", "build a snow bear", "a carrot for the nose"),
    ("the moon is nearly full", "look at the stars", "the old telescope"),
    ("the sea is warm", "swim to the island", "the towels"),
    ("my birthday is near", "eat cake", "your drum"),
)


def letter_story(chance: Chance) -> str:
    hero, friend = cast(chance, 2)
    news, plan, bring = chance.pick(PLANS)
    day = chance.pick(DAYS)
    hour = COUNT[chance.number(1, 12)]
    return paragraphs(
        f"{opening(chance, hero)} {hero.they_first} missed {friend.name} the {friend.kind}, who "
        f"lived far away. So one day {hero.name} wrote a letter.",
        f"Dear {friend.name},\n{first_upper(news)}. Will you come on {day} at {hour} o'clock? We "
        f"could {plan}. Please bring {bring}.\nYour friend,\n{hero.name}",
        f"Two days later an answer came.\n\nDear {hero.name},\nThank you for your letter. Yes, I "
        f"will come on {day} at {hour} o'clock, and I will bring {bring}. I have always wanted to "
        f"{plan}.\nYour friend,\n{friend.name}",
        f"And on {day} at {hour} o'clock there was a knock at the door. "
        f"{ending(chance, hero, friend)}",
    )


BREAKS = (
    ("clock", "fell off the wall", "a new spring", "went tick and tock again"),
    ("chair", "lost a leg", "a piece of wood", "stood straight again"),
    ("kite", "got caught in a tree", "a bit of string", "flew again"),
    ("boat", "hit a stone", "a small board", "did not leak any more"),
    ("teapot", "fell off the table", "a little glue", "held tea again"),
    ("cart", "lost a wheel", "a round cheese", "rolled again, and smelled of cheese"),
)


def repair_story(chance: Chance) -> str:
    hero, friend = cast(chance, 2)
    thing, mishap, cure, cured = chance.pick(BREAKS)
    wrong = chance.some(("a leaf", "some honey", "a ribbon", "a kind word", "a loud shout"), 2)
    tries = " ".join(f"{hero.name} tried {one}. It did not help." for one in wrong)
    return paragraphs(
        f"{opening(chance, hero)} {hero.they_first} had an old {thing} and loved it very much. "
        f'But one day the {thing} {mishap}. "Oh no!" cried {hero.name}. "My {thing} is broken!"',
        f"{tries} Then {friend.name} the {friend.kind} came by. "
        f'"Why are you sad, {hero.name}?" "I am sad because my {thing} {mishap}." "I know what '
        f'helps," said {friend.name}. "What we need is {cure}."',
        f"So they took {cure} and worked all day. And when they were done, the {thing} {cured}! "
        f"{ending(chance, hero, friend)}",
    )


def race_story(chance: Chance) -> str:
    hero, rival = cast(chance, 2)
    goal = chance.pick(("the old oak", "the bridge", "the red barn", "the well", "the lighthouse"))
    mishap = chance.pick(
        ("fell into a ditch", "lost a shoe", "got caught in the thorns", "was stung by a bee")
    )
    return paragraphs(
        f"{opening(chance, hero)} Nobody in the land could run like {hero.name}, or so "
        f'{hero.they} said. "I can run faster than you," said {rival.name} the {rival.kind}. '
        f'"Then let us race to {goal}," said {hero.name}.',
        f"One, two, three, go! {hero.name} ran, and {rival.name} ran. First {hero.name} was "
        f"ahead, then {rival.name} was ahead. But near {goal} {rival.name} {mishap}.",
        f"{hero.name} could have won. But {hero.name} stopped, turned around and helped "
        f'{rival.name}. "Why did you stop?" asked {rival.name}. "Because a friend is better than '
        f'a prize," said {hero.name}. So they walked to {goal} together, and both of them won. '
        f"{ending(chance, hero, rival)}",
    )


STORIES = (
    search_story,
    journey_story,
    pulling_story,
    garden_story,
    countdown_story,
    night_story,
    baking_story,
    letter_story,
    repair_story,
    race_story,
)


def story(chance: Chance) -> str:
    return chance.pick(STORIES)(chance)


# --- sums ---------------------------------------------------------------------------------------


def addition(left: int, right: int) -> str:
    return f"{left} + {right} = {left + right}"


def subtraction(left: int, right: int) -> str:
    return f"{left + right} - {right} = {left}"


def multiplication(left: int, right: int) -> str:
    return f"{left} x {right} = {left * right}"


def table(chance: Chance) -> str:
    """Count one side of a sum upwards."""
    rows = chance.number(5, 10)
    if chance.happens(0.4):
        left, first = chance.number(1, 12), chance.number(1, 3)
        return "\n".join(multiplication(left, first + row) for row in range(rows))
    sums = chance.pick((addition, subtraction))
    left, first = chance.number(0, 30), chance.number(0, 15)
    return "\n".join(sums(left, first + row) for row in range(rows))


def mixed_sums(chance: Chance) -> str:
    """Sums in no order: small numbers most, two digits often."""
    lines = []
    for _ in range(chance.number(5, 12)):
        high = chance.pick((10, 20, 20, 30, 50))
        sums = chance.weighted({addition: 3, subtraction: 2, multiplication: 1})
        high = 12 if sums is multiplication else high
        lines.append(sums(chance.number(0, high), chance.number(0, high)))
    return "\n".join(lines)


GOODS = (
    *("apples", "pears", "books", "stones", "shells", "coins", "eggs", "nuts", "stars", "balls"),
    *("cookies", "flowers"),
)


def word_problem(chance: Chance) -> str:
    problems = []
    for _ in range(chance.number(1, 3)):
        hero, friend = cast(chance, 2)
        goods = chance.pick(GOODS)
        has, change = chance.number(2, 20), chance.number(2, 12)
        if chance.happens(0.6):
            what = f"{friend.name} gives {hero.them} {change} more."
            result, sum_ = has + change, addition(has, change)
        else:
            has += change
            what = f"{hero.they_first} gives {change} to {friend.name}."
            result, sum_ = has - change, subtraction(has - change, change)
        problems.append(
            f"{hero.name} has {has} {goods}. {what} How many {goods} does {hero.name} have now?\n"
            f"{sum_}\n{hero.name} has {result} {goods} now."
        )
    return paragraphs(*problems)


def counting(chance: Chance) -> str:
    step = chance.weighted({1: 3, 2: 3, 3: 1, 5: 2, 10: 2})
    start = chance.number(0, 40) if step in (1, 2, 3) else step
    end = start + step * chance.number(8, 16)
    numbers = range(start, end + 1, step)
    if chance.happens(0.3):
        lead, numbers = f"Count down by {step}: ", numbers[::-1]
    else:
        lead = f"Count by {step}: "
    return lead + ", ".join(map(str, numbers)) + "."


def sums(chance: Chance) -> str:
    kinds = {table: 2, mixed_sums: 6, word_problem: 2, counting: 1}
    return chance.weighted(kinds)(chance)


# --- code ---------------------------------------------------------------------------------------

FRUIT = ("apple", "pear", "plum", "cherry", "fig", "lemon", "melon", "grape", "kiwi", "peach")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A function as text, and examples of it that came out right."""

    source: str
    examples: tuple[tuple[str, object], ...]


def number_function(chance: Chance) -> Snippet:
    n = chance.pick(("n", "x", "number", "value"))
    k = chance.number(2, 12)
    name, says, body, computes = chance.pick(
        (
            ("double", f"Return twice {n}.", f"{n} * 2", lambda a: a * 2),
            ("square", f"Return {n} times {n}.", f"{n} * {n}", lambda a: a * a),
            ("half", f"Return half of {n}.", f"{n} // 2", lambda a: a // 2),
            ("next_number", f"Return the number after {n}.", f"{n} + 1", lambda a: a + 1),
            (f"add_{k}", f"Add {k} to {n}.", f"{n} + {k}", lambda a: a + k),
            (f"times_{k}", f"Multiply {n} by {k}.", f"{n} * {k}", lambda a: a * k),
            ("is_even", f"Say whether {n} is even.", f"{n} % 2 == 0", lambda a: a % 2 == 0),
            ("is_odd", f"Say whether {n} is odd.", f"{n} % 2 == 1", lambda a: a % 2 == 1),
            (f"is_over_{k}", f"Say whether {n} is over {k}.", f"{n} > {k}", lambda a: a > k),
        )
    )
    values = sorted(chance.some(range(1, 13), chance.number(2, 3)))
    return Snippet(
        f'def {name}({n}):\n    """{says}"""\n    return {body}',
        tuple((f"{name}({value})", computes(value)) for value in values),
    )


def pair_function(chance: Chance) -> Snippet:
    a, b = chance.pick((("a", "b"), ("x", "y"), ("left", "right"), ("width", "height")))
    name, says, body, computes = chance.pick(
        (
            ("add", f"Return the sum of {a} and {b}.", f"return {a} + {b}", lambda p, q: p + q),
            ("multiply", f"Multiply {a} by {b}.", f"return {a} * {b}", lambda p, q: p * q),
            (
                "larger",
                f"Return the larger of {a} and {b}.",
                f"if {a} > {b}:\n        return {a}\n    return {b}",
                max,
            ),
            (
                "smaller",
                f"Return the smaller of {a} and {b}.",
                f"if {a} < {b}:\n        return {a}\n    return {b}",
                min,
            ),
            (
                "distance",
                f"Say how far {a} is from {b}.",
                f"if {a} > {b}:\n        return {a} - {b}\n    return {b} - {a}",
                lambda p, q: abs(p - q),
            ),
        )
    )
    pairs = [(chance.number(1, 12), chance.number(1, 12)) for _ in range(chance.number(2, 3))]
    return Snippet(
        f'def {name}({a}, {b}):\n    """{says}"""\n    {body}',
        tuple((f"{name}({p}, {q})", computes(p, q)) for p, q in pairs),
    )


def loop_function(chance: Chance) -> Snippet:
    items, item = chance.pick((("numbers", "number"), ("values", "value"), ("items", "item")))
    name, says, start, step, computes = chance.pick(
        (
            ("total", f"Add up {items}.", "0", f"result += {item}", sum),
            ("count", f"Count the {items}.", "0", "result += 1", len),
            (
                "last",
                f"Return the last {item}.",
                "None",
                f"result = {item}",
                lambda v: v[-1],
            ),
            (
                "largest",
                f"Return the largest of the {items}.",
                "0",
                f"if {item} > result:\n            result = {item}",
                max,
            ),
            (
                "count_even",
                f"Count the even {items}.",
                "0",
                f"if {item} % 2 == 0:\n            result += 1",
                lambda v: sum(1 for one in v if one % 2 == 0),
            ),
        )
    )
    lists = [
        [chance.number(1, 9) for _ in range(chance.number(2, 4))]
        for _ in range(chance.number(1, 2))
    ]
    return Snippet(
        f'def {name}({items}):\n    """{says}"""\n    result = {start}\n'
        f"    for {item} in {items}:\n        {step}\n    return result",
        tuple((f"{name}({values})", computes(values)) for values in lists),
    )


def word_function(chance: Chance) -> Snippet:
    word = chance.pick(("word", "text", "name"))
    hello = chance.pick(("Hello", "Good morning", "Welcome", "Bonjour", "Grüß dich", "Γειά σου"))
    name, says, body, computes = chance.pick(
        (
            ("shout", f"Make {word} loud.", f'{word}.upper() + "!"', lambda w: w.upper() + "!"),
            ("twice", f"Say {word} twice.", f'{word} + " " + {word}', lambda w: f"{w} {w}"),
            ("first", f"Return the first letter of {word}.", f"{word}[0]", lambda w: w[0]),
            ("length", f"Count the letters of {word}.", f"len({word})", len),
            ("plural", f"Return many of {word}.", f'{word} + "s"', lambda w: w + "s"),
            ("greet", f"Greet {word}.", f'"{hello}, " + {word}', lambda w: f"{hello}, {w}"),
        )
    )
    words = chance.some(FRUIT, 2) if name != "greet" else chance.some(GIRLS + BOYS, 2)
    return Snippet(
        f'def {name}({word}):\n    """{says}"""\n    return {body}',
        tuple((f'{name}("{one}")', computes(one)) for one in words),
    )


FUNCTIONS = (number_function, number_function, pair_function, loop_function, word_function)


def code(chance: Chance) -> str:
    """One or two functions, each with its doctest or an assertion."""
    blocks = []
    for _ in range(chance.number(1, 2)):
        snippet = chance.pick(FUNCTIONS)(chance)
        if chance.happens(0.75):
            shown = "\n".join(f">>> {call}\n{value!r}" for call, value in snippet.examples)
        else:
            shown = "\n".join(f"assert {call} == {value!r}" for call, value in snippet.examples)
        blocks.append(f"{snippet.source}\n\n{shown}")
    return "\n\n\n".join(blocks)


# --- other languages ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Language:
    """A few words of a language: who, does what, where; and a way to begin and to end."""

    name: str
    begin: tuple[str, ...]
    who: tuple[str, ...]
    does: tuple[str, ...]
    where: tuple[str, ...]
    refrain: tuple[str, ...]
    end: tuple[str, ...]
    sentence: str = "{who} {does} {where}."
    gap: str = " "


LANGUAGES = (
    Language(
        "German",
        ("Es war einmal ein schöner Tag.", "Früh am Morgen ist es kühl.", "Heute fällt Schnee."),
        ("Die Katze", "Der Bär", "Das Mädchen", "Der Müller", "Der Löwe", "Die kleine Kröte"),
        ("schläft", "träumt", "hört Musik", "läuft", "singt fröhlich", "trinkt süßen Tee"),
        ("im Garten", "auf der Brücke", "unter den Bäumen", "in der Küche", "am Fluss"),
        ("Die Vögel singen dazu.", "Draußen ist es grün.", "Wie schön!"),
        ("Gute Nacht und süße Träume!", "Und morgen fängt alles von vorne an."),
    ),
    Language(
        "French",
        (
            "C'était un matin d'été.",
            "Il était une fois une forêt.",
            "Voilà une journée douce.",
        ),
        ("Le chat", "La fée", "Le garçon", "Ma grand-mère", "L'éléphant", "Le vieux forgeron"),
        ("rêve", "chante", "prépare le goûter", "préfère rester", "écoute la mer", "a déjeuné"),
        ("à la fenêtre", "près de la rivière", "dans la forêt", "sous les étoiles", "au café"),
        ("Ça sent bon le pain.", "Où est passé le soleil ?", "Que c'est beau !"),
        ("Bonne nuit, à bientôt !", "Et le rêve continue."),
    ),
    Language(
        "Greek",
        ("Μια φορά ήταν ένα νησί.", "Σήμερα ο ήλιος λάμπει.", "Είναι πρωί."),
        ("Η γάτα", "Ο ψαράς", "Το παιδί", "Η γιαγιά", "Ο σκύλος"),
        ("κοιμάται", "τραγουδά", "τρέχει", "γελά", "περιμένει"),
        ("στη θάλασσα", "στον κήπο", "κάτω από το δέντρο", "στο σπίτι", "στο λιμάνι"),
        ("Τι ωραία μέρα!", "Η θάλασσα είναι μπλε."),
        ("Καληνύχτα!", "Και αύριο πάλι."),
    ),
    Language(
        "Russian",
        ("Жила была одна деревня.", "Сегодня идёт снег.", "Наступило утро."),
        ("Кошка", "Мальчик", "Бабушка", "Медведь", "Старый мельник"),
        ("спит", "поёт", "читает книгу", "пьёт чай", "ждёт друга"),
        ("в саду", "на кухне", "у реки", "под деревом", "в лесу"),
        ("Какой хороший день!", "Птицы тоже поют."),
        ("Спокойной ночи!", "А завтра всё будет снова."),
    ),
    Language(
        "Japanese",
        ("むかしむかし、ちいさなむらがありました。", "きょうはいいてんきです。"),
        ("ねこ", "いぬ", "おばあさん", "こども", "うさぎ", "ロボット"),
        ("ねています", "うたっています", "あそんでいます", "おちゃをのんでいます"),
        ("にわで", "うみで", "もりで", "いえで", "かわのそばで"),
        ("とてもたのしいです。", "そらはあおいです。"),
        ("おやすみなさい。", "またあした。"),
        sentence="{who}は{where}{does}。",
        gap="",
    ),
)


def foreign(chance: Chance) -> str:
    language = chance.pick(LANGUAGES)
    lines = chance.number(3, 5)
    refrain = chance.pick(language.refrain)
    people = chance.some(language.who, min(lines, len(language.who)))
    told = [chance.pick(language.begin)]
    for who in people:
        sentence = language.sentence.format(
            who=who, does=chance.pick(language.does), where=chance.pick(language.where)
        )
        told += [sentence, refrain]
    text = language.gap.join([*told, chance.pick(language.end)])
    return f"{language.name}: {text}" if chance.happens(0.4) else text


# English, German, French, Greek, Russian, Japanese, and a picture.
DICTIONARY = (
    ("cat", "Katze", "chat", "γάτα", "кошка", "ねこ", "🐱"),
    ("dog", "Hund", "chien", "σκύλος", "собака", "いぬ", "🐶"),
    ("fish", "Fisch", "poisson", "ψάρι", "рыба", "さかな", "🐟"),
    ("bird", "Vogel", "oiseau", "πουλί", "птица", "とり", "🐦"),
    ("tree", "Baum", "arbre", "δέντρο", "дерево", "き", "🌳"),
    ("flower", "Blüte", "fleur", "λουλούδι", "цветок", "はな", "🌸"),
    ("sun", "Sonne", "soleil", "ήλιος", "солнце", "たいよう", "🌞"),
    ("moon", "Mond", "lune", "φεγγάρι", "луна", "つき", "🌙"),
    ("star", "Stern", "étoile", "αστέρι", "звезда", "ほし", "⭐"),
    ("apple", "Apfel", "pomme", "μήλο", "яблоко", "りんご", "🍎"),
    ("bread", "Brot", "pain", "ψωμί", "хлеб", "パン", "🍞"),
    ("cake", "Kuchen", "gâteau", "κέικ", "торт", "ケーキ", "🍰"),
    ("house", "Haus", "maison", "σπίτι", "дом", "いえ", "🏠"),
    ("sea", "Meer", "mer", "θάλασσα", "море", "うみ", "🌊"),
    ("bear", "Bär", "ours", "αρκούδα", "медведь", "くま", "🐻"),
    ("snow", "Schnee", "neige", "χιόνι", "снег", "ゆき", "❄️"),
    ("book", "Buch", "livre", "βιβλίο", "книга", "ほん", "📚"),
    ("rabbit", "Häschen", "lapin", "λαγός", "заяц", "うさぎ", "🐰"),
)
SAME_FOR_MANY = ("fish", "snow", "bread")
TONGUES = ("German", "French", "Greek", "Russian", "Japanese")


def dictionary(chance: Chance) -> str:
    lines = []
    for english, *words, picture in chance.some(DICTIONARY, chance.number(2, 4)):
        pairs = list(zip(TONGUES, words, strict=True))
        lines.append(
            f"{picture} The {english}: "
            + ", ".join(f"{word} in {tongue}" for tongue, word in pairs)
            + "."
        )
    return "\n".join(lines)


def pictures(chance: Chance) -> str:
    """Count things in pictures."""
    lines = []
    for english, *_, picture in chance.some(DICTIONARY, chance.number(3, 5)):
        count = chance.number(1, 6)
        many = english if count == 1 or english in SAME_FOR_MANY else f"{english}s"
        lines.append(f"{first_upper(COUNT[count])} {many}: {picture * count}")
    return "\n".join(lines)


def other_languages(chance: Chance) -> str:
    return chance.weighted({foreign: 3, dictionary: 1, pictures: 1})(chance)


# Weights per text; a story is two to three times as long as anything else. A sum looks easy and
# is the last to be learned: a table only counts on, so sums in no order are told most.
KINDS: dict[Callable[[Chance], str], float] = {story: 60, sums: 50, code: 25, other_languages: 10}


if __name__ == "__main__":
    for one in islice(texts(int(sys.argv[1]) if sys.argv[1:] else 0), 12):
        print(one, end="\n\n----\n\n")
