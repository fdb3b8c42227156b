"""The survey section: opinions of users of the two middlewares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.patches import Rectangle
from scipy.stats import mannwhitneyu

from nervure_lab.tsc.document import DIFFERS, FAILS, HOLDS, Cell, Figure, Finding, Section, Table
from nervure_lab.tsc.drawing import BLUE, GREY, ORANGE, figure, grouped_bars
from nervure_lab.tsc.source import Source

_FILES = ("survey/2020RMWUserSurvey.csv", "survey/2020RMWUserSurveyREDACTED.csv")
SCALE = {"Strongly Disagree": 1, "Disagree": 2, "Neutral": 3, "Agree": 4, "Strongly Agree": 5}
_WITHOUT_ANSWER = {None, "", "NO OPINION / NOT APPLICABLE"}
_MIDDLEWARE = "For ROS 2 Foxy what ROS middleware layer"
_VERSION = "This survey is intended specifically"
_QUESTION = "Please answer the following questions"
_COHORTS = {
    "ROS 2 version": _VERSION,
    "application": "Which of the following best describes your robotic application",
    "domain": "Which of the following best describes your robot's application domain",
}
_SKILLS = {
    "networking": "On a scale from 1 to 10",
    "years of ROS": "We want to understand your ROS experience",
    "ROS middleware": "Please rate your familiarity with ROS Middleware",
    "Linux": "Please rate your Linux debugging",
}
CYCLONE, FAST = "Cyclone DDS", "Fast RTPS"
_COLOURS = {CYCLONE: BLUE, FAST: ORANGE, "all": GREY}
RESAMPLES = 10_000
ALPHA = 0.05


@dataclass(frozen=True)
class Question:
    """Answers from 1 (strongly disagree) to 5, by cohort."""

    number: int
    text: str
    answers: dict[str, list[int]]

    def mean(self, cohort: str) -> float:
        answers = self.answers[cohort]
        return sum(answers) / len(answers) if answers else math.nan

    def deviation(self, cohort: str) -> float:
        """The sample's standard deviation."""
        answers = self.answers[cohort]
        return float(np.std(answers, ddof=1)) if len(answers) > 1 else math.nan

    def difference(self) -> tuple[float, float, float]:
        """Cyclone's mean less Fast's, with its interval of 95 % (percentile bootstrap over respondents)."""
        cyclone, fast = (np.asarray(self.answers[name]) for name in (CYCLONE, FAST))
        generator = np.random.default_rng(self.number)
        draws = generator.choice(cyclone, (RESAMPLES, cyclone.size)).mean(axis=1)
        draws -= generator.choice(fast, (RESAMPLES, fast.size)).mean(axis=1)
        low, high = np.percentile(draws, [2.5, 97.5])
        return float(cyclone.mean() - fast.mean()), float(low), float(high)

    def probability(self) -> float:
        """That two samples of one population differ as much (Mann and Whitney 1947, with ties)."""
        return float(mannwhitneyu(self.answers[CYCLONE], self.answers[FAST]).pvalue)


def section(source: Source) -> Section:
    table = source.table(_FILES, [])
    path = str(source.directory / _FILES[0])
    cohorts = _cohorts(table, path)
    questions = _questions(table, cohorts, path)
    return Section(
        "Survey: users on their middleware",
        "Answers from 1 (strongly disagree) to 5 (strongly agree); without opinion they do not count. Means "
        "and sample standard "
        "deviations by the middleware that a respondent mainly uses; differences with a bootstrap interval "
        "of 95 % over "
        f"respondents ({RESAMPLES} draws) and the test of Mann and Whitney. A star marks questions that "
        "stay significant at 5 % "
        "after Holm's correction (1979) for all questions.",
        _findings(table, cohorts, questions),
        [_question_table(questions), _cohort_table(table, cohorts)],
        [
            _cohort_figure(table, cohorts),
            _skill_figure(table, cohorts, path),
            _response_figure(questions),
            _drill_down(questions, (4, 5, 11), 1),
            _drill_down(questions, (13, 14, 16), 2),
        ],
        (
            "Respondents chose themselves, and most users of Cyclone DDS had chosen it over a default: this "
            "alone can explain "
            "Q3, Q4, Q13 and Q14.",
            "A Likert scale is ordinal; means are given because the report has them.",
        ),
        facts={
            f"Q{question.number} {cohort}": question.mean(cohort)
            for question in questions
            for cohort in (FAST, CYCLONE)
        },
    )


def _column(table: pl.DataFrame, start: str, path: str) -> pl.Series:
    found = [name for name in table.columns if name.startswith(start)]
    if len(found) != 1:
        raise ValueError(f"{path}: expected one column `{start}..`, got {len(found)}")
    return table[found[0]]


def _cohorts(table: pl.DataFrame, path: str) -> list[str | None]:
    """The cohort of each respondent; None for another middleware."""
    names = {"Cyclone": CYCLONE, "Fast": FAST}
    answers = _column(table, _MIDDLEWARE, path)
    return [next((names[part] for part in names if part in (answer or "")), None) for answer in answers]


def _questions(table: pl.DataFrame, cohorts: Sequence[str | None], path: str) -> list[Question]:
    columns = [name for name in table.columns if name.startswith(_QUESTION)]
    if not columns:
        raise ValueError(f"{path}: expected columns `{_QUESTION}..`, got none")
    questions = []
    for number, column in enumerate(columns, start=1):
        answers: dict[str, list[int]] = {CYCLONE: [], FAST: [], "all": []}
        for row, (answer, cohort) in enumerate(zip(table[column], cohorts, strict=True), start=2):
            if answer in _WITHOUT_ANSWER:
                continue
            if answer not in SCALE:
                expected = ", ".join(SCALE)
                raise ValueError(f"{path}, row {row}, question {number}: expected {expected}, got {answer!r}")
            answers["all"].append(SCALE[answer])
            if cohort:
                answers[cohort].append(SCALE[answer])
        text = " ".join(column.partition("[")[2].rstrip("]").split())
        questions.append(Question(number, text, answers))
    return questions


def significant(questions: Sequence[Question]) -> set[int]:
    """The numbers of the questions with a difference that Holm's correction keeps at the level `ALPHA`."""
    found = set()
    ordered = sorted(questions, key=Question.probability)
    for at, question in enumerate(ordered):
        if question.probability() > ALPHA / (len(ordered) - at):
            break
        found.add(question.number)
    return found


def _question_table(questions: Sequence[Question]) -> Table:
    stars = significant(questions)
    rows: list[list[Cell]] = []
    for question in questions:
        difference, low, high = question.difference()
        row: list[Cell] = [f"Q{question.number}{'*' if question.number in stars else ''}", question.text]
        for cohort in (FAST, CYCLONE, "all"):
            row += [
                len(question.answers[cohort]),
                f"{question.mean(cohort):.2f} ± {question.deviation(cohort):.2f}",
            ]
        rows.append([*row, f"{difference:+.2f} [{low:+.2f}, {high:+.2f}]", f"{question.probability():.4f}"])
    columns = [
        "",
        "question",
        "n Fast",
        "Fast RTPS",
        "n Cyclone",
        "Cyclone DDS",
        "n all",
        "all",
        "difference [95 %]",
        "p",
    ]
    return Table("survey-questions", "Means with standard deviations.", columns, rows)


def _counts(table: pl.DataFrame, cohorts: Sequence[str | None], start: str) -> dict[str, dict[str, int]]:
    """Number of respondents by answer and cohort; answers in the respondents' own words are `other`."""
    answers = [answer or "no answer" for answer in _column(table, start, "survey")]
    common = {answer for answer in answers if answers.count(answer) >= 3}
    counts: dict[str, dict[str, int]] = {}
    for answer, cohort in zip(answers, cohorts, strict=True):
        if cohort:
            group = counts.setdefault(answer if answer in common else "other", {CYCLONE: 0, FAST: 0})
            group[cohort] += 1
    return dict(sorted(counts.items(), key=lambda item: (item[0] == "other", -sum(item[1].values()))))


def _cohort_table(table: pl.DataFrame, cohorts: Sequence[str | None]) -> Table:
    rows: list[list[Cell]] = []
    for title, start in _COHORTS.items():
        for answer, group in _counts(table, cohorts, start).items():
            rows.append([title, answer, group[FAST], group[CYCLONE]])
    caption = "Respondents by middleware; answers that fewer than three gave are `other`."
    return Table("survey-cohorts", caption, ["question", "answer", "Fast RTPS", "Cyclone DDS"], rows)


def _findings(
    table: pl.DataFrame, cohorts: Sequence[str | None], questions: Sequence[Question]
) -> list[Finding]:
    by_number = {question.number: question for question in questions}
    stars = sorted(significant(questions))
    fast, cyclone = cohorts.count(FAST), cohorts.count(CYCLONE)
    foxy = sum(answer == "Foxy" for answer in _column(table, _VERSION, "survey")) / table.height
    far = [q for q in questions if abs(q.difference()[0]) > 0.05 * 5]
    higher = sum(q.difference()[0] > 0 for q in questions)

    def means(number: int) -> str:
        question = by_number[number]
        difference, low, high = question.difference()
        return (
            f"Q{number} Fast RTPS {question.mean(FAST):.2f}, Cyclone DDS {question.mean(CYCLONE):.2f} "
            f"({difference:+.2f}, [{low:+.2f}, {high:+.2f}])"
        )

    recommends = [means(13), means(14)]
    uniform = by_number[11].difference()
    return [
        Finding(
            "6.1",
            "96 responses, 31 of users of Cyclone DDS and 60 of users of Fast RTPS.",
            HOLDS if (table.height, cyclone, fast) == (96, 31, 60) else DIFFERS,
            f"The stored table has {table.height} responses, {cyclone} and {fast}.",
        ),
        Finding(
            "6.1",
            "Nearly three quarters of the respondents use ROS 2 Foxy.",
            HOLDS if 0.7 <= foxy <= 0.78 else DIFFERS,
            f"{100 * foxy:.0f} %.",
        ),
        Finding(
            "6.3",
            "Most responses differ by no more than 5 % between the middlewares.",
            FAILS if len(far) > len(questions) / 2 else HOLDS,
            f"{len(far)} of {len(questions)} means differ by more than 5 % of the scale's maximum: "
            f"{', '.join(f'Q{q.number}' for q in far)}. Largest: {means(4)}; {means(3)}.",
        ),
        Finding(
            "6.2.3",
            "For most questions the values of users of Cyclone DDS are higher.",
            DIFFERS if len(stars) < higher else HOLDS,
            f"Higher in {higher} of {len(questions)}; significant after correction for {len(questions)} "
            "questions: "
            f"{', '.join(f'Q{number}' for number in stars) or 'none'}.",
        ),
        Finding(
            "Summary",
            "Users of Cyclone DDS are more likely to recommend it, as the default and to a friend.",
            HOLDS if all(by_number[number].difference()[1] > 0 for number in (13, 14)) else DIFFERS,
            "; ".join(recommends) + ".",
        ),
        Finding("6.3", "Users are capable of changing their middleware.", DIFFERS, f"{means(3)}."),
        Finding(
            "6.3",
            "Users of Cyclone DDS find support and debugging tools slightly better, those of Fast RTPS the "
            "documentation.",
            DIFFERS,
            f"{means(6)}; {means(8)}: the tools the other way round; {means(7)}.",
        ),
        Finding(
            "6.3",
            "In question 11 (considered a change because of technical challenges) both are nearly uniform.",
            DIFFERS if uniform[1] <= 0 <= uniform[2] else FAILS,
            f"{means(11)}: no difference is shown, and neither is that there is none.",
        ),
        Finding(
            "6.1.1",
            "Nineteen questions were asked; eighteen are listed.",
            HOLDS if len(questions) == 19 else DIFFERS,
            f"The table has {len(questions)}. The report leaves out Q19, whether the implementation is "
            f"secure: {means(19)}."
            if 19 in by_number
            else f"The table has {len(questions)}.",
        ),
    ]


def _cohort_figure(table: pl.DataFrame, cohorts: Sequence[str | None]) -> Figure:
    drawing, line = plt.subplots(1, 3, figsize=(8, 3.6), width_ratios=[1, 1.4, 1.4])
    for axes, (title, start) in zip(line, _COHORTS.items(), strict=True):
        counts = _counts(table, cohorts, start)
        names = [_wrapped(name) for name in counts]
        for at, cohort in enumerate((FAST, CYCLONE)):
            positions = [group + (at - 0.5) * 0.4 for group in range(len(names))]
            hatch = "///" if cohort == FAST else ""
            values = [group[cohort] for group in counts.values()]
            axes.barh(
                positions, values, 0.38, color=_COLOURS[cohort], hatch=hatch, ec="white", lw=0, label=cohort
            )
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.grid(axis="y", visible=False)
        axes.set_title(title, fontsize=9)
    drawing.supxlabel("respondents", fontsize=9)
    drawing.legend(*line[0].get_legend_handles_labels(), ncols=2, loc="outside upper center", fontsize=8)
    caption = "Respondents by version, application and domain."
    return figure("survey-cohorts-bars", caption, drawing, _cohort_table(table, cohorts))


def _wrapped(text: str) -> str:
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > 24:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _skill_figure(table: pl.DataFrame, cohorts: Sequence[str | None], path: str) -> Figure:
    drawing, axes = plt.subplots(figsize=(8, 3))
    rows: list[list[Cell]] = []
    for at, start in enumerate(_SKILLS.values()):
        column = _column(table, start, path).cast(pl.Float64, strict=False)
        for side, cohort in enumerate((FAST, CYCLONE)):
            values = [v for v, c in zip(column, cohorts, strict=True) if c == cohort and v is not None]
            rows += [[list(_SKILLS)[at], cohort, value] for value in values]
            place = at + (side - 0.5) * 0.36
            box = axes.boxplot(
                [values], positions=[place], widths=0.3, patch_artist=True, flierprops={"ms": 3}
            )
            box["boxes"][0].set(facecolor=_COLOURS[cohort], alpha=0.75, hatch="///" if cohort == FAST else "")
            box["medians"][0].set(color="black", lw=2)
    axes.set_xticks(range(len(_SKILLS)), list(_SKILLS))
    axes.set_ylabel("self-assessment, or years")
    handles = [Rectangle((0, 0), 1, 1, color=_COLOURS[cohort]) for cohort in (FAST, CYCLONE)]
    axes.legend(handles, (FAST, CYCLONE), ncols=2, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1))
    data = Table("", "", ["skill", "middleware", "value"], rows)
    return figure("survey-skills", "Self-assessment of skills (boxes: quartiles).", drawing, data)


def _response_figure(questions: Sequence[Question]) -> Figure:
    drawing, axes = plt.subplots(figsize=(8, 3.6))
    stars = significant(questions)
    names = [f"Q{q.number}{'*' if q.number in stars else ''}" for q in questions]
    cohorts = (FAST, CYCLONE, "all")
    series = [(name, _COLOURS[name], [q.mean(name) for q in questions]) for name in cohorts]
    errors = [
        [(q.mean(name) - q.deviation(name), q.mean(name) + q.deviation(name)) for q in questions]
        for name in cohorts
    ]
    grouped_bars(axes, names, series, errors=errors)
    axes.set_ylim(1, 5.9)
    axes.set_yticks(range(1, 6))
    axes.set_ylabel("mean answer")
    axes.tick_params(axis="x", labelsize=8)
    axes.legend(ncols=3, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1))
    caption = "Mean answers, lines of one standard deviation; a star marks a significant difference."
    return figure("survey-responses", caption, drawing, _question_table(questions))


def _drill_down(questions: Sequence[Question], numbers: Sequence[int], which: int) -> Figure:
    by_number = {question.number: question for question in questions}
    drawing, line = plt.subplots(1, len(numbers), figsize=(8, 2.9), sharey=True)
    rows: list[list[Cell]] = []
    for axes, number in zip(line, numbers, strict=True):
        question = by_number[number]
        series: list[tuple[str, str, list[float | None]]] = []
        for cohort in (FAST, CYCLONE):
            answers = question.answers[cohort]
            shares: list[float | None] = [
                100 * answers.count(value) / len(answers) for value in SCALE.values()
            ]
            series.append((cohort, _COLOURS[cohort], shares))
            rows += [[number, cohort, value, answers.count(value)] for value in SCALE.values()]
        labels = ["strongly\ndisagree", "disagree", "neutral", "agree", "strongly\nagree"]
        grouped_bars(axes, labels, series)
        axes.tick_params(axis="x", labelsize=7, rotation=45)
        axes.set_title(f"Q{number}", fontsize=9)
    line[0].set_ylabel("respondents, %")
    drawing.legend(*line[0].get_legend_handles_labels(), ncols=2, loc="outside upper center", fontsize=8)
    texts = "; ".join(f"Q{number}: {by_number[number].text}" for number in numbers)
    data = Table("", "", ["question", "middleware", "answer", "respondents"], rows)
    return figure(f"survey-drill-down-{which}", f"Distribution of the answers. {texts}", drawing, data)
