"""Ideas about dictionaries, pairs and grids."""

from dspark_cli.train.templates.ideas.idea import idea

TABLES = (
    idea(
        "richest_key key_of_maximum favourite",
        "counts",
        "str",
        "Return the key with the greatest value in {0}; of several the first in the alphabet.",
        lambda _, d: min(d, key=lambda key: (-d[key], key)),
    ),
    idea(
        "at_least_{k} keys_from_{k}",
        "counts",
        "List[str]",
        "List the keys of {0} whose value is {k} or more, in alphabetical order.",
        lambda k, d: sorted(key for key, n in d.items() if n >= k),
    ),
    idea(
        "invert swap_keys_and_values",
        "counts",
        "Dict[int, List[str]]",
        "Map every value in {0} to the sorted list of its keys.",
        lambda _, d: {n: sorted(key for key in d if d[key] == n) for n in d.values()},
    ),
    idea(
        "add_counts merge_totals combine",
        "counts counts",
        "Dict[str, int]",
        "Add {0} and {1}: a key that is missing in one of them counts as 0 there. | Merge two tables; where both {0} and {1} have a key, add the values.",
        lambda _, a, b: {
            key: a.get(key, 0) + b.get(key, 0) for key in [*a, *(x for x in b if x not in a)]
        },
    ),
    idea(
        "remove_below_{k} prune_{k}",
        "counts",
        "Dict[str, int]",
        "Return {0} without the entries whose value is less than {k}.",
        lambda k, d: {key: n for key, n in d.items() if n >= k},
    ),
    idea(
        "total_for add_up_known_keys",
        "counts words",
        "int",
        "Add up the values that {0} has for the {1}. Unknown ones count as 0, repeated ones each time.",
        lambda _, d, ws: sum(d.get(w, 0) for w in ws),
    ),
    idea(
        "missing_keys not_listed",
        "counts words",
        "List[str]",
        "Return those {1} that are no keys of {0}, each once and in alphabetical order.",
        lambda _, d, ws: sorted(set(ws) - set(d)),
    ),
    idea(
        "as_lines to_report",
        "counts",
        "List[str]",
        "Turn each entry of {0} into text such as 'lamp: 3', in the order of the dictionary.",
        lambda _, d: [f"{key}: {n}" for key, n in d.items()],
    ),
    idea(
        "scale_by_{k} times_{k}",
        "counts",
        "Dict[str, int]",
        "Multiply every value of {0} by {k} and leave {0} itself unchanged.",
        lambda k, d: {key: n * k for key, n in d.items()},
    ),
    idea(
        "frequencies tally",
        "words",
        "Dict[str, int]",
        "Count how often each of the {0} occurs, in the order of their first occurrence.",
        lambda _, ws: {w: ws.count(w) for w in ws},
    ),
    idea(
        "positions_of where_each",
        "words",
        "Dict[str, List[int]]",
        "Map each of the {0} to the list of its positions.",
        lambda _, ws: {w: [i for i, v in enumerate(ws) if v == w] for w in ws},
    ),
    idea(
        "first_letters_table index_by_initial",
        "words",
        "Dict[str, List[str]]",
        "Group the {0} by their first letter in lower case; both the keys and the lists keep the order of the input.",
        lambda _, ws: {w[0].lower(): [v for v in ws if v[0].lower() == w[0].lower()] for w in ws},
    ),
    idea(
        "total_length covered_length",
        "pairs",
        "int",
        "Each pair in {0} is a start and an end. Return the sum of the lengths; overlaps count twice.",
        lambda _, ps: sum(b - a for a, b in ps),
    ),
    idea(
        "longest_pair widest_interval",
        "pairs",
        "Tuple[int, int]",
        "Return the pair of {0} whose two numbers are furthest apart; the first of them if there are several.",
        lambda _, ps: max(ps, key=lambda p: p[1] - p[0]),
    ),
    idea(
        "any_overlap do_collide",
        "pairs",
        "bool",
        "Each pair in {0} is a start and an end. Do two of them share more than one point?",
        lambda _, ps: any(
            a[0] < b[1] and b[0] < a[1] for i, a in enumerate(ps) for b in ps[i + 1 :]
        ),
    ),
    idea(
        "swap_all mirrored",
        "pairs",
        "List[Tuple[int, int]]",
        "Exchange the two numbers of every pair in {0}.",
        lambda _, ps: [(b, a) for a, b in ps],
    ),
    idea(
        "count_containing_{k} covers_{k}",
        "pairs",
        "int",
        "How many of the {0} contain {k}, their ends included?",
        lambda k, ps: sum(a <= k <= b for a, b in ps),
    ),
    idea(
        "bounding_box enclosing",
        "pairs",
        "Tuple[int, int, int, int]",
        "Each pair in {0} is a point (x, y). Return the least x, the least y, the greatest x and the greatest y.",
        lambda _, ps: (
            min(a for a, _ in ps),
            min(b for _, b in ps),
            max(a for a, _ in ps),
            max(b for _, b in ps),
        ),
    ),
    idea(
        "sorted_by_sum smallest_sum_first",
        "pairs",
        "List[Tuple[int, int]]",
        "Sort the {0} by the sum of their two numbers; those with equal sums keep their order.",
        lambda _, ps: sorted(ps, key=sum),
    ),
    idea(
        "row_totals sum_rows",
        "grid",
        "List[int]",
        "Return the sum of each row of {0}.",
        lambda _, g: [sum(row) for row in g],
    ),
    idea(
        "column_maxima highest_per_column",
        "grid",
        "List[int]",
        "Return the greatest number of each column of {0}. All rows have the same length.",
        lambda _, g: [max(column) for column in zip(*g, strict=True)],
    ),
    idea(
        "transposed rows_to_columns",
        "grid",
        "List[List[int]]",
        "Turn the rows of {0} into columns.",
        lambda _, g: [list(column) for column in zip(*g, strict=True)],
    ),
    idea(
        "border_sum frame_total",
        "grid",
        "int",
        "Add up the numbers on the border of {0}, corners once.",
        lambda _, g: sum(
            n
            for y, row in enumerate(g)
            for x, n in enumerate(row)
            if y in {0, len(g) - 1} or x in {0, len(row) - 1}
        ),
    ),
    idea(
        "quarter_turn rotate_clockwise",
        "grid",
        "List[List[int]]",
        "Rotate {0} clockwise by a quarter turn.",
        lambda _, g: [list(column) for column in zip(*g[::-1], strict=True)],
    ),
    idea(
        "locate_{k} find_{k}",
        "grid",
        "Optional[Tuple[int, int]]",
        "Return row and column of the first {k} in {0}, row by row, or None if there is none.",
        lambda k, g: next(
            ((y, x) for y, row in enumerate(g) for x, n in enumerate(row) if n == k), None
        ),
    ),
    idea(
        "count_cells_over_{k} bright_cells_{k}",
        "grid",
        "int",
        "How many numbers in {0} are greater than {k}?",
        lambda k, g: sum(n > k for row in g for n in row),
        (2, 7),
    ),
    idea(
        "mirror_rows flip_horizontally",
        "grid",
        "List[List[int]]",
        "Reverse every row of {0}.",
        lambda _, g: [row[::-1] for row in g],
    ),
    idea(
        "flatten join_lists one_list",
        "lists",
        "List[int]",
        "Put the elements of all {0} into one list, in their order.",
        lambda _, ls: [x for xs in ls for x in xs],
    ),
    idea(
        "longest_list biggest_group",
        "lists",
        "List[int]",
        "Return the longest of the {0}; the first one if there are several.",
        lambda _, ls: max(ls, key=len),
    ),
    idea(
        "in_all_lists shared_by_all",
        "lists",
        "List[int]",
        "Return the numbers that occur in each of the {0}, ascending and without repetition.",
        lambda _, ls: sorted(set(ls[0]).intersection(*ls[1:])),
    ),
    idea(
        "best_sum heaviest_group",
        "lists",
        "int",
        "Return the greatest sum that one of the {0} has.",
        lambda _, ls: max(map(sum, ls)),
    ),
    idea(
        "pad_with_zeros same_length",
        "lists",
        "List[List[int]]",
        "Append zeros to the shorter {0} until all have the length of the longest.",
        lambda _, ls: [xs + [0] * (max(map(len, ls)) - len(xs)) for xs in ls],
    ),
    idea(
        "heads first_of_each",
        "lists",
        "List[int]",
        "Return the first element of each of the {0}. None of them is empty.",
        lambda _, ls: [xs[0] for xs in ls],
    ),
)
