"""Pieces of code, some of them faulty, with a question about them.

Names in capitals are replaced by identifiers: ``ITEMS`` and ``ITEM`` by a plural and its singular,
``FIELD`` by a property, ``DO`` by a verb, ``NUM`` by a number.
"""

from dspark_cli.train.templates.slots import Writer

ITEMS = (
    ("orders", "order"), ("players", "player"), ("books", "book"), ("trains", "train"),
    ("guests", "guest"), ("plants", "plant"), ("songs", "song"), ("routes", "route"),
    ("rooms", "room"), ("tickets", "ticket"), ("letters", "letter"), ("recipes", "recipe"),
    ("sensors", "sensor"), ("courses", "course"), ("boats", "boat"), ("teams", "team"),
    ("files", "file"), ("planets", "planet"), ("tasks", "task"), ("coins", "coin"),
)  # fmt: skip
FIELDS = (
    "price", "weight", "age", "score", "length", "year", "distance", "rank", "height", "speed",
    "rating", "volume", "cost", "delay", "level", "size",
)  # fmt: skip
VERBS = (
    "collect", "total", "pick", "update", "measure", "check", "load", "scan", "prepare", "filter",
    "show", "count", "convert", "clean", "find", "report",
)  # fmt: skip

FAULTY = (
    """def DO_ITEMS(ITEMS):
    total = 0
    for ITEM in ITEMS:
        total += ITEM["FIELD"]
        return total""",
    """def average_FIELD(ITEMS):
    return sum(ITEM.FIELD for ITEM in ITEMS) / len(ITEMS)""",
    """def DO_ITEM(ITEM, seen=[]):
    if ITEM not in seen:
        seen.append(ITEM)
    return len(seen)""",
    """for i in range(1, len(ITEMS)):
    if ITEMS[i].FIELD > NUM:
        ITEMS.remove(ITEMS[i])""",
    """def DO_FIELD(FIELD):
    if FIELD > NUM:
        result = "large"
    elif FIELD < NUM:
        result = "small"
    return result""",
    """best = 0
for ITEM in ITEMS:
    if ITEM.FIELD < best:
        best = ITEM.FIELD
print("smallest FIELD:", best)""",
    """def countdown(FIELD):
    while FIELD != 0:
        print(FIELD)
        FIELD -= 2""",
    """with open("ITEMS.txt") as f:
    lines = f.readlines()
for line in lines:
    if line == "end":
        break
    DO_ITEM(int(line))""",
    """function DO_ITEMS(ITEMS) {
  let total = 0;
  for (const ITEM in ITEMS) {
    total += ITEM.FIELD;
  }
  return total;
}""",
    """const ITEMS = await fetch("/api/ITEMS").json();
console.log(ITEMS.length);""",
    """int DO_FIELD(int* FIELD, int n) {
    int best;
    for (int i = 0; i <= n; i++)
        if (FIELD[i] > best) best = FIELD[i];
    return best;
}""",
    """std::vector<int> ITEMS = {3, NUM, 8};
for (auto it = ITEMS.begin(); it != ITEMS.end(); ++it)
    if (*it > 5) ITEMS.erase(it);""",
    """SELECT name, COUNT(*)
FROM ITEMS
WHERE COUNT(*) > NUM
GROUP BY name;""",
    """#!/bin/bash
for f in $(ls *.ITEM); do
  mv $f backup/$f.old
done""",
    """class ITEM_list:
    def __init__(self, FIELD):
        FIELD = FIELD

    def DO(self):
        return self.FIELD * NUM""",
    """def is_valid(FIELD):
    try:
        return int(FIELD) > NUM
    except:
        pass""",
    """def DO_twice(ITEMS):
    copy = ITEMS
    copy.sort()
    return ITEMS, copy""",
    """public int DO(List<Integer> ITEMS) {
    int sum = 0;
    for (int i = 0; i < ITEMS.size(); i++);
        sum += ITEMS.get(i);
    return sum;
}""",
)
SOUND = (
    """def DO_ITEMS(ITEMS, limit=NUM):
    chosen = []
    for ITEM in sorted(ITEMS, key=lambda x: -x["FIELD"]):
        if limit <= 0:
            break
        chosen.append(ITEM)
        limit -= 1
    return chosen""",
    """def DO_by_FIELD(ITEMS):
    table = {}
    for ITEM in ITEMS:
        table.setdefault(ITEM.FIELD, []).append(ITEM)
    return table""",
    """def DO(FIELD):
    if FIELD < 10:
        return FIELD
    return FIELD % 10 + DO(FIELD // 10)""",
    """ITEMS = {n: n * n % NUM for n in range(20)}
print(max(ITEMS, key=ITEMS.get))""",
    """def pairs(ITEMS):
    for i, a in enumerate(ITEMS):
        for b in ITEMS[i + 1:]:
            yield a, b""",
    """@dataclass
class ITEM_record:
    name: str
    FIELD: float = NUM.0

    def DO(self, factor: float) -> "ITEM_record":
        return replace(self, FIELD=self.FIELD * factor)""",
    """def DO_ITEMS(ITEMS):
    low, high = 0, len(ITEMS) - 1
    while low < high:
        middle = (low + high) // 2
        if ITEMS[middle].FIELD < NUM:
            low = middle + 1
        else:
            high = middle
    return low""",
    """const DOITEMS = (ITEMS) =>
  ITEMS
    .filter((ITEM) => ITEM.FIELD > NUM)
    .map((ITEM) => ITEM.name)
    .join(", ");""",
    """SELECT t.name, AVG(i.FIELD) AS mean
FROM ITEMS i
JOIN towns t ON t.id = i.town_id
GROUP BY t.name
HAVING AVG(i.FIELD) > NUM
ORDER BY mean DESC;""",
    """template <typename T>
T DO(const std::vector<T>& ITEMS) {
    T best = ITEMS.front();
    for (const auto& ITEM : ITEMS)
        if (best < ITEM) best = ITEM;
    return best;
}""",
    """fn DO_ITEMS(ITEMS: &[u32]) -> Option<u32> {
    ITEMS.iter().copied().filter(|x| x % NUM == 0).max()
}""",
    """find . -name "*.ITEM" -mtime -NUM -print0 | xargs -0 wc -l | sort -n | tail -5""",
    """def DO_ITEMS(ITEMS):
    stack, depth = [], 0
    for ITEM in ITEMS:
        if ITEM == "(":
            stack.append(ITEM)
            depth = max(depth, len(stack))
        elif stack:
            stack.pop()
    return depth""",
    """from collections import Counter

def DO_ITEMS(ITEMS):
    seen = Counter(ITEM["FIELD"] for ITEM in ITEMS)
    return [FIELD for FIELD, times in seen.items() if times > NUM]""",
    """async function DOITEM(id) {
  const answer = await fetch(`/ITEMS/${id}`);
  if (!answer.ok) throw new Error(answer.statusText);
  return (await answer.json()).FIELD;
}""",
    """func DOITEMS(ITEMS map[string]int) (names []string) {
    for name, FIELD := range ITEMS {
        if FIELD > NUM {
            names = append(names, name)
        }
    }
    return
}""",
)
REPAIR = (
    "Fix the bug.",
    "Find the bug in this code and explain it.",
    "This code does not do what I expect. Why?",
    "What is wrong here? Return the corrected code.",
    "Review this code as a strict but friendly colleague.",
    "My teacher says there is a mistake in it. Give me a hint first, then the solution.",
    "Write a test that shows the error, then repair the code.",
    "Which inputs make this fail?",
    "why doesnt this work??",
    "Repair the code and change as little as possible.",
)
EXAMINE = (
    "Explain this code.",
    "Explain this code line by line.",
    "What does this do? Answer in one sentence.",
    "Rewrite this in {Kotlin|Swift|C#|Ruby|TypeScript|Haskell}.",
    "Write {three|four|five} tests for this.",
    "Add comments and better names.",
    "Add type annotations or a doc comment.",
    "What is the running time of this code?",
    "Make this code more readable.",
    "Can this be made faster?",
    "Refactor this into smaller pieces.",
    "What happens if the input is empty?",
    "Trace this code for a small input of your choice, in a table.",
    "Add error handling.",
    "Write documentation for it in Markdown, with an example.",
)
LANGUAGES = (
    ("public ", "java"), ("SELECT", "sql"), ("std::", "cpp"), ("int ", "cpp"), ("template", "cpp"), ("fn ", "rust"),
    ("func ", "go"), ("function ", "javascript"), ("const ", "javascript"), ("#!", "bash"),
    ("find ", "bash"), ("async ", "javascript"),
)  # fmt: skip


def renamed(code: str, writer: Writer) -> str:
    """The code with identifiers of its own."""
    items, item = writer.deal([" ".join(pair) for pair in ITEMS]).split()
    field, verb = writer.deal(FIELDS), writer.deal(VERBS)
    words = {
        "DOITEMS": verb + items.capitalize(),
        "DOITEM": verb + item.capitalize(),
        "ITEMS": items,
        "ITEM_list": item.capitalize() + "List",
        "ITEM_record": item.capitalize(),
        "ITEM": item,
        "FIELD": field,
        "DO": verb,
        "NUM": str(writer.number(2, 60)),
    }
    for mark, word in words.items():
        code = code.replace(mark, word)
    return code


def language(code: str) -> str:
    """The name that stands behind the fence."""
    found = (name for mark, name in LANGUAGES if code.startswith(mark))
    return next(found, "python")


def snippet(writer: Writer) -> str:
    """A piece of code with the question, in one of several layouts."""
    codes, tasks = (FAULTY, REPAIR) if writer.chance(0.5) else (SOUND, EXAMINE)
    task, code = writer.fill(writer.deal(tasks)), renamed(writer.deal(codes), writer)
    fenced = f"```{language(code)}\n{code}\n```"
    layouts = (f"{task}\n\n{fenced}", f"{fenced}\n\n{task}", f"{task}\n\n{code}")
    return layouts[writer.number(0, len(layouts) - 1)]
