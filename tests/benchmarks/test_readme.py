from pathlib import Path

import pytest

from benchmarks import readme
from benchmarks.experiments import REPOSITORY
from benchmarks.readme import BEGIN, END, results_section, with_results
from benchmarks.report import markdown
from benchmarks.results import Record, Results
from benchmarks.speed_results import SpeedResults, SpeedRow

EXPERIMENT = {
    "title": "Sudoku 4×4",
    "description": "Text.",
    "columns": [{"metric": "test/solved", "title": "solved", "percent": True}],
    "variants": {"sheaf": "Sheaf-ADMM", "mpnn": "MPNN"},
    "figures": {"sheaf_admm_sudoku.png": "A caption."},
}


CLAIMS = """
sheaf_admm:
  title: Sheaf-ADMM
  figure: sheaf_admm_sudoku.png
  claims:
    - {says: solves more, task: Sudoku 4×4, experiment: sudoku, metric: test/solved, ours: sheaf, others: [mpnn]}
"""


def fill(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    records = [Record("sudoku", "sheaf", "test/solved", seed, value, 100, 60.0, 24006) for seed, value in ((1, 0.5), (2, 0.7))]
    records += [Record("sudoku", "mpnn", "test/solved", seed, 0.1, 100, 60.0, 31749) for seed in (1, 2)]
    records += [Record("sudoku", "sheaf", "test/other", 1, 0.0, 100, 60.0, 24006)]
    Results(records, {"sudoku": EXPERIMENT}, {}).save(folder / "sheaf_admm.json")
    speed = SpeedResults()
    row = SpeedRow("sheaf_admm", "matvec", 0.001, 0.004, "generic", "", 0.25, 20)
    speed.replace("sheaf_admm", [row], {"command": "c", "git": None, "versions": {}, "machine": "m"})
    speed.save(folder)


def test_rows_come_from_the_json_files(tmp_path: Path):
    fill(tmp_path)
    section = results_section(tmp_path, "sheaf_admm")
    # mean 0.6, deviation 0.1·√2, standard error 0.1
    assert "**Sudoku 4×4**\n\n| variant | solved (%) | parameters |" in section
    assert "| Sheaf-ADMM | 60.0 ± 10.0 | 24,006 | 100 | 60 | 2 |" in section
    assert "| sheaf_admm | matvec | generic | 1 ms | 4 ms | 0.250 | 20 |" in section


def test_details_are_in_no_card(tmp_path: Path):
    fill(tmp_path)
    results = Results.load(tmp_path / "sheaf_admm.json")
    results.experiments["sudoku"]["detail"] = True
    results.save(tmp_path / "sheaf_admm.json")
    assert "Sudoku 4×4" not in results_section(tmp_path, "sheaf_admm")


def test_without_results_the_section_says_so(tmp_path: Path):
    assert results_section(tmp_path, "sheaf_admm") == "No results have been measured yet."


def test_only_the_marked_parts_are_rewritten(tmp_path: Path):
    fill(tmp_path / "docs" / "results")
    (tmp_path / "docs" / "results" / "sheaf_admm_sudoku.png").touch()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "claims.yaml").write_text(CLAIMS)
    page = tmp_path / "README.md"
    page.write_text(f"# Title\n{BEGIN}\nold\n{END}\nend\n")
    cards = tmp_path / "lightning_modules"
    for method in ("sheaf_admm", "other"):
        (cards / method).mkdir(parents=True)
        (cards / method / "README.md").write_text(f"# Card\n{BEGIN}\n{END}\n")
    words = ["--root", str(tmp_path)]
    assert readme.main([*words, "--check"]) == 1
    assert not (tmp_path / "docs" / "findings.md").exists()
    assert readme.main(words) == 0
    assert "Sudoku 4×4" in (cards / "sheaf_admm" / "README.md").read_text()
    assert "No results" in (cards / "other" / "README.md").read_text()
    text = page.read_text()
    assert text.startswith(f"# Title\n{BEGIN}\n\n")
    assert text.endswith(f"\n\n{END}\nend\n")
    row = "| solves more | Sudoku 4×4 | Sheaf-ADMM: 60.0 ± 10.0 % | MPNN: 10.0 ± 0.0 % | **holds** |"
    assert row in text
    assert "*Solves more*: **holds**" in (tmp_path / "docs" / "findings.md").read_text()
    assert "results/sheaf_admm_sudoku.png" in (tmp_path / "docs" / "gallery.md").read_text()
    assert readme.main([*words, "--check"]) == 0


@pytest.mark.parametrize("text", ["no markers", f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}", BEGIN])
def test_missing_markers_are_named(text: str):
    with pytest.raises(ValueError, match="README needs one line"):
        with_results(text, "section")


def test_readme_and_cards_agree_with_the_published_results():
    assert readme.main(["--check"]) == 0, "run python -m benchmarks.readme"


def test_published_reports_agree_with_their_json():
    folder = REPOSITORY / "docs" / "results"
    for path in folder.glob("*.json"):
        report = path.with_suffix(".md").read_text()
        if path.name == "speed.json":
            assert report == SpeedResults.load(path).markdown()
            continue
        results = Results.load(path)
        assert report == markdown(path.stem, results), f"run python -m benchmarks.headline {path.stem} --report-only"
        for experiment in results.experiments.values():
            assert all((folder / figure).exists() for figure in experiment["figures"])
