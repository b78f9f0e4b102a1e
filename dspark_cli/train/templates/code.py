"""Code: functions to be completed, and everything else one asks about programs."""

from dspark_cli.train.templates.completions import completion
from dspark_cli.train.templates.slots import Writer, capitalised, followed
from dspark_cli.train.templates.snippets import snippet
from dspark_cli.train.templates.words import listed

WORK = listed("""
    keeps the last {3-20} {goods} in a ring buffer;
    reads a CSV file of {goods} and prints the total per {job};
    merges two sorted lists into one without calling sort;
    finds every path to {a:animal} in a nested dictionary;
    parses a line like "{thing}, {3-90}, {place}" into a dictionary;
    groups {goods} by their first letter;
    counts how often each word occurs in a text and returns the {3-12} most frequent ones;
    checks whether brackets of three kinds are balanced;
    turns a number of seconds into text such as "{1-5} h {1-59} min";
    splits a bill of {given}, {given} and {given} in proportion to what each of them ate;
    validates {an e-mail address|a postcode|a telephone number|a licence plate} without a regular expression;
    flattens a list of lists of any depth;
    removes all comments that start with # from a text;
    computes the moving average over {3-12} values;
    retries a network call up to {2-7} times with growing pauses;
    finds the shortest path through a maze given as a list of strings;
    converts Roman numerals below {50-900} into numbers;
    encodes a text by replacing each vowel with the next one;
    tells on which weekday the {1-28} {month} of a given year falls;
    finds the {job} with the largest number of {goods} in a list of records;
    rotates a square matrix by {90|180|270} degrees;
    draws a diamond of stars with a given width;
    generates all ways to pay {20-95} cents with coins of {2-5}, 10 and {15-25} cents;
    compares two version strings such as "2.{3-9}.1" and "2.10";
    reads a configuration file with sections and returns nested dictionaries;
    finds duplicate files in a folder by their contents;
    simulates a queue at a {bakery|post office|ferry|ski lift} for {30-240} minutes;
    checks whether a {sudoku row|chess move|tic-tac-toe board|bingo card} is valid;
    implements a stack with a method that returns the minimum in constant time;
    caches the results of a slow function for {5-90} seconds;
    wraps a text at {30-90} columns without breaking words;
    computes the distance between two points on a globe;
    sorts {animal} names by length and then alphabetically;
    finds the longest stretch of days without {rain|sales|errors|visitors} in a list;
    assigns {12-40} pupils to groups of {3-6} at random, so that no group has fewer than {2-3};
    translates a text into Morse code and back;
    measures how similar two strings are;
    picks a random {food} with given weights;
    prints a calendar page for {month};
    rounds prices to the nearest {five|ten|twenty} cents;
    turns a list of pairs (parent, child) into an indented tree;
    computes the interest on {100-900} euros after {2-20} years;
    replaces every {thing} in a text by {a:thing}, whatever its capitalisation;
    checks whether two time spans overlap;
    finds free slots of {15-90} minutes in a list of appointments;
    turns a table of {goods} into Markdown;
    counts islands in a grid of land and water;
    evaluates an arithmetic expression given as a string, without eval;
    keeps a high-score list of {3-10} entries;
    tells whether a word can be laid with given letter tiles;
    computes the median without sorting the whole list;
    converts between {Celsius and Fahrenheit|miles and kilometres|inches and centimetres|cups and millilitres};
    iterates over a large file in blocks of {4-64} kilobytes;
    limits calls to {2-60} per minute;
    compresses repeated characters in a string and expands them again;
    shuffles a deck of cards and deals {5-13} cards to each of {2-6} players;
    schedules tasks that depend on each other;
    finds the two {goods} whose prices are closest to each other;
    transposes a list of rows of unequal length;
    checks a password: at least {8-14} characters, one digit, one sign;
    builds a histogram of marks as text;
    finds all numbers below {100-999} whose digits add up to {5-20};
    yields the numbers of a spiral through a matrix;
    makes a slug such as "{thing}-in-{month}" from a title;
    computes the check digit of a {library card|bus ticket|parcel} number by a rule of your choice;
    undoes and redoes the last {5-50} edits of a text;
    finds the first character of a text that is not repeated;
    merges two dictionaries of {goods} by adding the numbers;
    walks a binary tree level by level;
    formats a table with right-aligned numbers;
    tells how many {weekday}s lie between two dates;
    removes an element from a linked list;
    converts a colour from hexadecimal to RGB and darkens it by {5-40} per cent;
    reads temperatures from standard input until a blank line and prints the mean;
    spells the numbers up to {20-99} in {language};
    rearranges {goods} so that equal ones are not neighbours;
    prints the multiplication table up to {7-20};
    finds the cheapest of {3-8} offers including shipping;
    keeps track of who borrowed which {thing}""")

WRITE = (
    "Write a Python function that {work}.",
    "Write a Python function that {work}.",
    "Write a {JavaScript|TypeScript|C++|Rust|Go|Java|C#|Ruby} function that {work}.",
    "Write a {JavaScript|C++|Rust|Kotlin|Swift|Haskell|C|Lua} program that {work}. {Keep it short.|Explain the main idea first.}",
    "How do I write a function in {Python|Kotlin|Swift|C|Lua|PHP} that {work}?",
    "Write a Python function that {work}. Add type hints and a docstring.",
    "Write unit tests with pytest for a function that {work}.",
    "Implement a {function|class} in {Python|Java|C++|TypeScript} which {work}, and discuss its running time.",
    "write python code that {work}, no external libraries",
    "I need a small tool in {Python|Go|Rust|Node.js} that {work}. Which structure would you choose? Then write it.",
    "Give me two versions of a Python function that {work}: one easy to read, one fast.",
    "Write pseudocode for a program that {work}, then the same in {Python|C++|JavaScript}.",
    "Design a class in Python that {work}. Show only the method signatures with docstrings.",
    "Here is the name and the purpose of a function: it {work}. Requirements:\n- Python 3.10\n- {no recursion|no imports|only the standard library|type hints}\n- raise ValueError on bad input\n- {2-4} doctests",
)

ASK = (
    "Write an SQL query that lists every {job} with more than {2-20} {goods}, from the tables people and orders.",
    "SQL: table sales(id, city, item, amount, day). Find the {city|item} with the highest total in {month}.",
    "Given the tables {goods@g}(id, name, price) and orders(id, item_id, count, day), write a query for the {3-10} best-selling {goods@g}.",
    "Which index would speed up `SELECT name FROM visitors WHERE town = '{place}' ORDER BY age`? Why?",
    "Write the CREATE TABLE statements for a library of {goods} that people can borrow.",
    "Explain the difference between {INNER JOIN and LEFT JOIN|WHERE and HAVING|UNION and UNION ALL|a view and a table|DELETE and TRUNCATE} with a small example about {goods}.",
    "Write a shell command that finds all {.jpg|.log|.py|.txt|.csv} files larger than {2-90} MB{ and sorts them by size| changed in the last {2-30} days|}.",
    "Bash: rename all files in a folder to {thing}-001, {thing}-002 and so on.",
    "Write a bash script that makes a backup of a folder every {weekday} and keeps the last {3-12}.",
    'How do I count the lines that contain "{thing}" in all files below the current folder?',
    "What does `{chmod 640|tar -xzf|grep -rn|kill -9|ln -s|du -sh|curl -L|sort -u} {notes|data|backup|site}` do, part by part?",
    "How do I {undo the last commit|squash three commits|find the commit that broke a test|move a commit to another branch|ignore a file that is already tracked|resolve a merge conflict} with git?",
    "Write an HTML page for {business} with a header, {2-5} sections and a contact form.",
    "HTML and CSS: {2-6} cards with {goods} in a grid, one column on phones.",
    "Write CSS that {centres a box|makes a sticky header|fades an image in|turns a list into a menu|styles a table with striped rows}, and comment each line.",
    "Write JavaScript for a page that {adds items to a shopping list|counts down {5-60} minutes|shows a random {animal} when I click|checks a form before it is sent|remembers the dark mode}.",
    "Write a {React|Vue|Svelte} component that shows a list of {goods} with a search box.",
    "Write a Dockerfile for a small {Python|Node.js|Go} service, and explain each line.",
    "Write a regular expression that matches {dates like 24.12.2031|times like 07:45|hashtags|prices in euros|words in capitals|hexadecimal colours}. Give {2-5} strings that match and {2-5} that do not.",
    "Write a JSON example of an order of {2-5} {goods} by {given} {family} from {place}, then a JSON schema for it.",
    "Write the YAML of a pipeline that runs tests on every push and deploys on {weekday}.",
    "What is the time complexity of {binary search|inserting into a heap|looking up a key in a dictionary|bubble sort|building a suffix array}? Explain with {8-64} elements.",
    "When should I use {a list and when a tuple|a class and when a function|threads and when processes|composition and when inheritance|recursion and when a loop|a set and when a list} in Python?",
    "Explain {decorators|generators|context managers|list comprehensions|closures|dataclasses|type variables|async and await|slots|the GIL} in Python with an example about {goods}.",
    "Explain {pointers|templates|RAII|move semantics|virtual functions|const correctness|smart pointers} in C++ to someone who knows {Python|Java|JavaScript}.",
    "Explain {promises|closures|hoisting|the event loop|destructuring|optional chaining|arrow functions} in JavaScript in {5-12} sentences.",
    "My program says `{IndexError: list index out of range|KeyError: 'name'|RecursionError: maximum recursion depth exceeded|TypeError: 'NoneType' object is not iterable|UnicodeDecodeError|ZeroDivisionError: division by zero}` when it reads {goods}. What are likely causes?",
    "Design a REST API for {business}: routes, methods, example answers.",
    "Suggest names for a function that {work}.",
    "Write a commit message and a changelog line for this change: the program now {work}.",
    "Review my plan: a script that {work}, written as one function of {80-400} lines with {3-9} global variables.",
    "Name {4-8} edge cases one should test in a function that {work}.",
    "What data structure fits best if a program {work}? Justify in a few sentences.",
    "Write a Makefile with targets for {test|build|docs}, clean and {run|install|release}.",
    "Write a README for a command-line tool that {work}.",
    "Write a Python class {Account|Garden|Library|Playlist|Elevator|Kitchen} with {3-6} methods and a short example of its use.",
    "Write C++ that reads {10-99} numbers and prints them in {reverse|ascending|random} order. Use only the standard library.",
    "Translate this into a list comprehension: go through {goods}, keep those above {3-60}, and double them.",
    "Write an {argparse|typer|click} interface for a script that {work}.",
    "Write a pandas snippet that reads {goods}.csv, drops rows without price and shows the mean price per {month|town|shop}.",
    "Sketch the database of {business} as a Mermaid diagram with {3-6} tables.",
)
AFTER = (
    "",
    "",
    "",
    " Only code, please.",
    " Comment the code.",
    " Show an example of its use.",
    " Handle empty input.",
    " Explain your choice of data structure.",
    " Then point out one possible improvement.",
    " Keep it below {15-60} lines.",
    " I am a beginner.",
    " Thanks!",
    " Use clear names.",
)

FENCED = (
    "Complete this function.",
    "Fill in the body of the function below.",
    "Please solve this exercise in Python.",
    "Here is a signature with its docstring. Write the function.",
    "Implement this, so that the examples hold:",
    "Finish the code:",
    "Can you write this function? The examples have to come out as shown.",
    "Solve the task and return the whole function.",
    "What would the code look like?",
    "I am stuck here, please write the rest.",
    "Write the Python code that this docstring promises, and check it with its examples.",
    "Your turn. Give me a solution that is correct for all inputs.",
)


def fenced(writer: Writer) -> str:
    """A function to be completed, as one shows code in a chat."""
    request = writer.deal(FENCED)
    return f"{request}\n```python\n{completion(writer)}{writer.deal(('', chr(10)))}```"


def asked(writer: Writer, templates: tuple[str, ...]) -> str:
    """A request in words."""
    template = writer.deal(templates)
    if "{work}" in template:
        template = template.replace("{work}", writer.deal(WORK))
    if templates is WRITE:
        template = followed(template, writer.deal(AFTER))
    return capitalised(writer.fill(template))


def code_prompt(writer: Writer) -> str:
    """One code prompt: 45 in a hundred to be completed, 20 with a snippet, the rest in words."""
    share = writer.number(1, 100)
    if share <= 25:  # noqa: PLR2004  per cent
        return fenced(writer)
    if share <= 45:  # noqa: PLR2004  per cent
        return completion(writer)
    if share <= 65:  # noqa: PLR2004  per cent
        return snippet(writer)
    return asked(writer, WRITE if writer.chance(0.65) else ASK)
