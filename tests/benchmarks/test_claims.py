from pathlib import Path

import pytest

from benchmarks.claims import Claim, find, findings_page, gallery_page, load_claims
from benchmarks.results import Record, Results

EXPERIMENT = {
    "title": "Task",
    "columns": [{"metric": "test/share", "title": "share", "percent": True}],
    "variants": {"ours": "Ours", "weak": "Weak", "strong": "Strong"},
}


def results(**values: list[float]) -> Results:
    records = [
        Record("task", variant, "test/share", seed, value, 1, 1.0, 1)
        for variant, found in values.items()
        for seed, value in enumerate(found)
    ]
    return Results(records, {"task": EXPERIMENT}, {})


def claim(**options: object) -> Claim:
    return Claim("is better", "some task", "task", "test/share", "ours", ["weak", "strong"], **options)  # type: ignore[arg-type]


# both have a standard error of 1 %, the difference one of 1.41 %: 2.83 % are sure
@pytest.mark.parametrize(
    ("mean", "better", "equal", "smaller"),
    [
        (0.53, "holds", "does not hold", "does not hold"),
        (0.52, "not seen", "not contradicted", "not seen"),
        (0.48, "not seen", "not contradicted", "not seen"),
        (0.47, "does not hold", "does not hold", "holds"),
    ],
)
def test_the_verdict_needs_two_standard_errors(mean: float, better: str, equal: str, smaller: str):
    found = results(ours=[mean - 0.01, mean + 0.01], weak=[0.49, 0.51], strong=[0.49, 0.51])
    assert find(claim(), found).verdict == better
    assert find(claim(expected="equal"), found).verdict == equal
    assert find(claim(lower=True), found).verdict == smaller


def test_ours_is_compared_with_the_best_of_the_others():
    found = results(ours=[0.5, 0.5], weak=[0.1, 0.1], strong=[0.7, 0.7])
    assert find(claim(), found).best_title == "Strong"
    assert find(claim(lower=True), found).best_title == "Weak"
    assert find(claim(), found).best == "70.0 ± 0.0 %"


def test_what_is_not_measured_is_said_to_be_so_or_an_error():
    assert find(Claim("is better", "needs a GPU"), results()).verdict == "not tested here"
    with pytest.raises(ValueError, match="task has no test/share of weak, strong"):
        find(claim(), results(ours=[1.0]))


def test_pages(tmp_path: Path):
    results(ours=[0.9, 0.9], weak=[0.1, 0.1], strong=[0.2, 0.2]).save(tmp_path / "method.json")
    (tmp_path / "there.png").touch()
    file = tmp_path / "claims.yaml"
    measured = "experiment: task, metric: test/share, ours: ours, others: [weak, strong]"
    entry = f"{{says: is better, task: some task, {measured}, note: A note.}}"
    methods = [
        f"{name}:\n  title: {name.title()}\n  figure: {figure}\n  claims: [{entry}]"
        for name, figure in (("method", "there.png"), ("other", "absent.png"))
    ]
    file.write_text("\n".join(methods))
    page = findings_page(tmp_path, load_claims(file))
    assert "- *Is better*: **holds**. Some task: Ours 90.0 ± 0.0 %, Strong 20.0 ± 0.0 %. A note." in page
    assert "Of 1 claims: 1 holds" in page
    assert "Other" not in page
    gallery = gallery_page(tmp_path, load_claims(file))
    assert "there.png" in gallery
    assert "absent.png" not in gallery


def test_an_unknown_field_is_named(tmp_path: Path):
    file = tmp_path / "claims.yaml"
    file.write_text("method: {title: T, figure: f.png, claims: [{says: a, task: b, sayz: c}]}")
    with pytest.raises(ValueError, match="claims.yaml, method: .*sayz"):
        load_claims(file)
