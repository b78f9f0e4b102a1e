"""Ideas about single numbers and their digits."""

import math

from dspark_cli.train.templates.ideas.idea import idea

NUMBERS = (
    idea(
        "digit_total add_digits cross_sum",
        "digits",
        "int",
        "Return the sum of the decimal digits of {0}.",
        lambda _, n: sum(map(int, str(n))),
    ),
    idea(
        "reverse_digits backwards",
        "digits",
        "int",
        "Write the digits of {0} in reverse order and return the number; zeros in front vanish.",
        lambda _, n: int(str(n)[::-1]),
    ),
    idea(
        "count_divisors number_of_divisors",
        "int",
        "int",
        "How many positive whole numbers divide {0} without remainder?",
        lambda _, n: sum(n % d == 0 for d in range(1, n + 1)),
    ),
    idea(
        "next_multiple_of_{k} round_up_to_{k}",
        "int",
        "int",
        "Return the smallest multiple of {k} that is not less than {0}.",
        lambda k, n: -(-n // k) * k,
        (3, 12),
    ),
    idea(
        "to_base_{k} in_base_{k}",
        "int",
        "str",
        "Write {0} in base {k}, most significant digit first.",
        lambda k, n: "".join(
            str(n // k**e % k) for e in range(int(math.log(n, k) + 1e-9), -1, -1)
        ),
        (3, 9),
    ),
    idea(
        "even_digits keep_even_digits",
        "digits",
        "List[int]",
        "List the even digits of {0} from left to right.",
        lambda _, n: [int(c) for c in str(n) if c in "02468"],
    ),
    idea(
        "prime_factors factorise",
        "int",
        "List[int]",
        "Return the prime factors of {0} in ascending order, each as often as it divides."
        " The number 1 has none.",
        lambda _, n: [
            p
            for p in range(2, n + 1)
            if all(p % d for d in range(2, p))
            for e in range(1, 9)
            if n % p**e == 0
        ],
    ),
    idea(
        "is_near_multiple_of_{k} close_to_multiple_of_{k}",
        "int",
        "bool",
        "Tell whether {0} differs by at most one from a multiple of {k}.",
        lambda k, n: n % k in {0, 1, k - 1},
        (4, 12),
    ),
    idea(
        "staircase triangle_rows",
        "small",
        "List[str]",
        "Return {0} strings: the first is one '#', each later one is longer by one '#'.",
        lambda _, n: ["#" * i for i in range(1, n + 1)],
    ),
    idea(
        "digits_in_{k}s group_digits_by_{k}",
        "digits",
        "str",
        "Write {0} with a blank after each group of {k} digits, counted from the left.",
        lambda k, n: " ".join(str(n)[i : i + k] for i in range(0, len(str(n)), k)),
        (2, 3),
    ),
    idea(
        "largest_digit top_digit",
        "digits",
        "int",
        "Return the largest decimal digit of {0}.",
        lambda _, n: int(max(str(n))),
    ),
    idea(
        "sorted_digits digits_descending",
        "digits",
        "int",
        "Sort the digits of {0} from large to small and return the number.",
        lambda _, n: int("".join(sorted(str(n), reverse=True))),
    ),
    idea(
        "digit_product multiply_digits",
        "digits",
        "int",
        "Multiply the decimal digits of {0}, but skip zeros.",
        lambda _, n: math.prod(int(c) for c in str(n) if c != "0"),
    ),
    idea(
        "contains_digit_{k} has_a_{k}",
        "digits",
        "bool",
        "Does the digit {k} occur in {0}?",
        lambda k, n: str(k) in str(n),
        (0, 9),
    ),
    idea(
        "is_square perfect_square",
        "int",
        "bool",
        "Is {0} the square of a whole number?",
        lambda _, n: math.isqrt(n) ** 2 == n,
    ),
    idea(
        "count_ones bits_set",
        "int",
        "int",
        "How many ones does {0} have in binary?",
        lambda _, n: f"{n:b}".count("1"),
    ),
    idea(
        "flip_bits complement",
        "int",
        "str",
        "Write {0} in binary and exchange zeros and ones.",
        lambda _, n: "".join("10"[int(c)] for c in f"{n:b}"),
    ),
    idea(
        "in_coins_of_{k} coins_and_rest",
        "int",
        "Tuple[int, int]",
        "How many coins worth {k} fit into {0}, and what remains? Return both.",
        lambda k, n: divmod(n, k),
        (2, 50),
    ),
    idea(
        "as_duration to_clock_text",
        "digits",
        "str",
        "Write {0} seconds as hours, minutes and seconds in the form 'H:MM:SS'.",
        lambda _, n: f"{n // 3600}:{n // 60 % 60:02}:{n % 60:02}",
    ),
    idea(
        "multiples_of_{k}_up_to all_multiples_{k}",
        "int",
        "List[int]",
        "List the positive multiples of {k} that are not greater than {0}.",
        lambda k, n: list(range(k, n + 1, k)),
        (20, 60),
    ),
    idea(
        "halving_steps times_halved",
        "int",
        "int",
        "How many times can {0} be halved, rounding down, until 0 remains?",
        lambda _, n: n.bit_length(),
    ),
    idea(
        "discount_{k} reduced_by_{k}",
        "amount",
        "float",
        "Reduce {0} by {k} per cent and round to two decimals.",
        lambda k, p: round(p * (100 - k) / 100, 2),
        (5, 60),
    ),
    idea(
        "euros_and_cents split_price",
        "amount",
        "Tuple[int, int]",
        "Split {0} into whole euros and cents.",
        lambda _, p: (int(p), round(p * 100) % 100),
    ),
    idea(
        "growing_pattern number_pyramid",
        "small",
        "List[List[int]]",
        "Return {0} lists: the first is [1], the second [1, 2], and so on.",
        lambda _, n: [list(range(1, i + 1)) for i in range(1, n + 1)],
    ),
    idea(
        "checker_row stripes",
        "small small",
        "List[str]",
        "Return {0} strings of {1} characters that alternate between '.' and '#', such that neighbours above and below differ as well. The first character is '.'.",
        lambda _, n, m: ["".join(".#"[(i + j) % 2] for j in range(m)) for i in range(n)],
    ),
    idea(
        "powers_of_{k} first_powers_{k}",
        "small",
        "List[int]",
        "Return the first {0} powers of {k}, beginning with 1.",
        lambda k, n: [k**i for i in range(n)],
    ),
    idea(
        "sum_up_to_skipping_{k} skip_multiples_{k}",
        "int",
        "int",
        "Add the numbers from 1 to {0} but leave out the multiples of {k}.",
        lambda k, n: sum(i for i in range(1, n + 1) if i % k),
    ),
    idea(
        "nearest_power_of_two round_to_power",
        "int",
        "int",
        "Return the greatest power of two that is not greater than {0}.",
        lambda _, n: 1 << n.bit_length() - 1,
    ),
    idea(
        "shared_divisors common_divisors",
        "int int",
        "List[int]",
        "List all positive numbers that divide both {0} and {1}.",
        lambda _, a, b: [d for d in range(1, min(a, b) + 1) if a % d == b % d == 0],
    ),
)
