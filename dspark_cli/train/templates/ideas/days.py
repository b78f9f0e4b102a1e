"""Ideas about times of day and dates, which are written as text."""

import calendar
from datetime import date, timedelta
from itertools import pairwise

from dspark_cli.train.templates.ideas.idea import idea


def minutes(clock: str) -> int:
    """Minutes since midnight."""
    hours, rest = clock.split(":")
    return 60 * int(hours) + int(rest)


def clock(total: int) -> str:
    """The time of day that many minutes after some midnight."""
    return f"{total // 60 % 24:02}:{total % 60:02}"


DAYS = (
    idea(
        "minutes_since_midnight to_minutes",
        "time",
        "int",
        "Convert {0}, written as 'HH:MM', to minutes since midnight. | How many minutes of the day have gone by at {0} ('HH:MM')?",
        lambda _, t: minutes(t),
    ),
    idea(
        "add_{k}_minutes later_by_{k}",
        "time",
        "str",
        "Return the time {k} minutes after {0}, both as 'HH:MM'. Midnight begins a new day.",
        lambda k, t: clock(minutes(t) + k),
        (15, 200),
    ),
    idea(
        "twelve_hours to_am_pm",
        "time",
        "str",
        "Write {0}, given as 'HH:MM', with 'am' or 'pm' and no zero in front, such as '7:05 pm'.",
        lambda _, t: f"{(int(t[:2]) + 11) % 12 + 1}{t[2:]} {'am' if t < '12:00' else 'pm'}",
    ),
    idea(
        "earliest first_of_day",
        "times",
        "str",
        "Return the earliest of the {0}, all written as 'HH:MM'.",
        lambda _, ts: min(ts),
    ),
    idea(
        "waiting_time minutes_until_next",
        "time times",
        "int",
        "How many minutes after {0} is the next of the {1}? A time of day that has passed comes again tomorrow. All are written as 'HH:MM'.",
        lambda _, t, ts: min((minutes(x) - minutes(t)) % 1440 for x in ts),
    ),
    idea(
        "round_to_{k}_minutes snap_down_{k}",
        "time",
        "str",
        "Round {0} ('HH:MM') down to a full {k} minutes since midnight.",
        lambda k, t: clock(minutes(t) // k * k),
        (5, 30),
    ),
    idea(
        "span_of_day first_to_last",
        "times",
        "int",
        "Return the minutes between the earliest and the latest of the {0} ('HH:MM').",
        lambda _, ts: max(map(minutes, ts)) - min(map(minutes, ts)),
    ),
    idea(
        "before_noon morning_only",
        "times",
        "List[str]",
        "Keep those {0} ('HH:MM') that lie before noon, in their order.",
        lambda _, ts: [t for t in ts if t < "12:00"],
    ),
    idea(
        "weekday_name day_of_week",
        "date",
        "str",
        "Return the English name of the weekday of {0}, which is written as 'YYYY-MM-DD'.",
        lambda _, d: (
            "Monday",
            "Tuesday",
            "Wednesday",
            "Thursday",
            "Friday",
            "Saturday",
            "Sunday",
        )[date.fromisoformat(d).weekday()],
    ),
    idea(
        "days_later_{k} plus_{k}_days",
        "date",
        "str",
        "Return the date {k} days after {0}; both are written as 'YYYY-MM-DD'.",
        lambda k, d: (date.fromisoformat(d) + timedelta(k)).isoformat(),
        (3, 120),
    ),
    idea(
        "day_of_year days_gone",
        "date",
        "int",
        "Which day of its year is {0} ('YYYY-MM-DD')? The first of January is 1.",
        lambda _, d: date.fromisoformat(d).timetuple().tm_yday,
    ),
    idea(
        "days_between how_far_apart",
        "date date",
        "int",
        "Return the number of days between {0} and {1}, never negative. Dates are 'YYYY-MM-DD'.",
        lambda _, a, b: abs((date.fromisoformat(a) - date.fromisoformat(b)).days),
    ),
    idea(
        "swap_date_format to_dotted",
        "date",
        "str",
        "Rewrite {0} from 'YYYY-MM-DD' to 'DD.MM.YYYY'.",
        lambda _, d: ".".join(reversed(d.split("-"))),
    ),
    idea(
        "count_weekends how_many_on_weekends",
        "dates",
        "int",
        "How many of the {0} ('YYYY-MM-DD') are a Saturday or a Sunday?",
        lambda _, ds: sum(date.fromisoformat(d).isoweekday() in {6, 7} for d in ds),
    ),
    idea(
        "widest_break longest_pause_in_days",
        "dates",
        "int",
        "Sort the {0} ('YYYY-MM-DD') and return the largest number of days between neighbours.",
        lambda _, ds: max((b - a).days for a, b in pairwise(sorted(map(date.fromisoformat, ds)))),
    ),
    idea(
        "group_by_month per_month",
        "dates",
        "Dict[int, int]",
        "Count the {0} ('YYYY-MM-DD') per month. The keys are the months that occur, ascending.",
        lambda _, ds: {
            m: sum(int(d[5:7]) == m for d in ds) for m in sorted(int(d[5:7]) for d in ds)
        },
    ),
    idea(
        "is_leap_year has_leap_day",
        "date",
        "bool",
        "Does the year of {0} ('YYYY-MM-DD') have a 29th of February?",
        lambda _, d: calendar.isleap(int(d[:4])),
    ),
)
