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


def fill(folder: Path) -> None:
    records = [Record("sudoku", "sheaf", "test/solved", seed, value, 100, 60.0, 24006) for seed, value in ((1, 0.5), (2, 0.7))]
    records += [Record("sudoku", "sheaf", "test/other", 1, 0.0, 100, 60.0, 24006)]
    Results(records, {"sudoku": EXPERIMENT}, {}).save(folder / "sheaf_admm.json")
    speed = SpeedResults()
    row = SpeedRow("sheaf_admm", "matvec", 0.001, 0.004, "generic", "", 0.25, 20)
    speed.replace("sheaf_admm", [row], {"command": "c", "git": None, "versions": {}, "machine": "m"})
    speed.save(folder)


def test_rows_come_from_the_json_files(tmp_path: Path):
    fill(tmp_path)
    section = results_section(tmp_path)
    # mean 0.6, deviation 0.1·√2, standard error 0.1
    assert "**sheaf_admm: Sudoku 4×4**\n\n| variant | solved (%) | parameters |" in section
    assert "| Sheaf-ADMM | 60.0 ± 10.0 | 24,006 | 100 | 60 | 2 |" in section
    speed = "| sheaf_admm | matvec | generic | 1 ms | 4 ms | 0.250 | 20 |"
    assert speed not in section
    assert speed in results_section(tmp_path, "sheaf_admm")


def test_only_headlines_are_in_readme(tmp_path: Path):
    fill(tmp_path)
    results = Results.load(tmp_path / "sheaf_admm.json")
    results.experiments["sudoku"]["headline"] = False
    results.save(tmp_path / "sheaf_admm.json")
    assert "Sudoku 4×4" not in results_section(tmp_path)
    assert "**Sudoku 4×4**" in results_section(tmp_path, "sheaf_admm")


def test_details_are_in_no_card(tmp_path: Path):
    fill(tmp_path)
    results = Results.load(tmp_path / "sheaf_admm.json")
    results.experiments["sudoku"]["detail"] = True
    results.save(tmp_path / "sheaf_admm.json")
    assert "Sudoku 4×4" not in results_section(tmp_path, "sheaf_admm")


def test_without_results_the_section_says_so(tmp_path: Path):
    assert results_section(tmp_path) == "No results have been measured yet."


def test_only_the_marked_part_is_rewritten(tmp_path: Path):
    fill(tmp_path)
    page = tmp_path / "README.md"
    page.write_text(f"# Title\n{BEGIN}\nold\n{END}\nend\n")
    for method in ("sheaf_admm", "other"):
        (tmp_path / "cards" / method).mkdir(parents=True)
        (tmp_path / "cards" / method / "README.md").write_text(f"# Card\n{BEGIN}\n{END}\n")
    words = ["--readme", str(page), "--results-root", str(tmp_path), "--cards", str(tmp_path / "cards")]
    assert readme.main([*words, "--check"]) == 1
    assert readme.main(words) == 0
    text = page.read_text()
    assert "Sudoku 4×4" in (tmp_path / "cards" / "sheaf_admm" / "README.md").read_text()
    assert "No results" in (tmp_path / "cards" / "other" / "README.md").read_text()
    assert text == f"# Title\n{BEGIN}\n\n{results_section(tmp_path)}\n\n{END}\nend\n"
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
