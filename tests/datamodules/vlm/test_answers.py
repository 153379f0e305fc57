from pathlib import Path

import pytest

from datamodules.vlm.answers import merge_answers, read_answers, write_answers

IDS = [1, 2, "VS/chart/0/1/0"]
ANSWERS = ["Yes", "Nein, »kein« Hund\nauf zwei Zeilen", ""]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_answers(tmp_path / "deep" / "answers.jsonl", IDS, ANSWERS)
    return tmp_path / "deep" / "answers.jsonl"


def test_there_and_back(file: Path):
    assert read_answers(file, IDS) == ANSWERS
    assert file.read_text(encoding="utf-8").count("\n") == 3  # one line an answer
    assert [entry.name for entry in file.parent.iterdir()] == ["answers.jsonl"]


def test_a_failed_write_leaves_the_old_file(file: Path):
    with pytest.raises(TypeError):
        write_answers(file, IDS, ["a", "b", {1, 2}])  # type: ignore[list-item]
    assert read_answers(file, IDS) == ANSWERS
    with pytest.raises(ValueError, match="2 answers to 3 questions: question 'VS/chart/0/1/0' has none"):
        write_answers(file, IDS, ["a", "b"])
    assert [entry.name for entry in file.parent.iterdir()] == ["answers.jsonl"]


def test_the_first_wrong_id_is_named(file: Path):
    with pytest.raises(ValueError, match="line 2 answers question 2, expected 3"):
        read_answers(file, [1, 3, "x"])
    with pytest.raises(ValueError, match="3 answers to 4 questions: question 7 has none"):
        read_answers(file, [*IDS, 7])
    with pytest.raises(ValueError, match="3 answers to 2 questions: question 'VS/chart/0/1/0' is not asked"):
        read_answers(file, IDS[:2])
    with pytest.raises(ValueError, match="line 1 answers question 1, expected '1'"):
        read_answers(file, ["1", 2, 3])


def test_keys_of_other_programs(tmp_path: Path):
    path = tmp_path / "llava.jsonl"
    path.write_text('{"question_id": 4, "text": "No"}\n')
    assert read_answers(path, [4], id_key="question_id", answer_key="text") == ["No"]
    with pytest.raises(ValueError, match="line 1 is no JSON object with 'id' and 'answer'"):
        read_answers(path, [4])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "line 1 is no JSON object"),
        ("{", "line 1 is no JSON object"),
        ('{"id": 1, "answer": 3}', "question 1 is no text but 3"),
    ],
)
def test_damaged_lines(tmp_path: Path, text: str, message: str):
    (tmp_path / "a.jsonl").write_text(text + "\n")
    with pytest.raises(ValueError, match=message):
        read_answers(tmp_path / "a.jsonl", [1])


def test_files_of_two_ranks_become_one(tmp_path: Path):
    ids = [1, 2, 3, 4, 5]
    parts = tmp_path / "0.jsonl", tmp_path / "1.jsonl"
    write_answers(parts[0], [1, 3, 5], ["a", "c", "e"])
    write_answers(parts[1], [4, 2], ["d", "b"])
    merge_answers(parts, ids, tmp_path / "all.jsonl")
    assert read_answers(tmp_path / "all.jsonl", ids) == ["a", "b", "c", "d", "e"]
    with pytest.raises(ValueError, match="question 2 is answered in none"):
        merge_answers(parts[:1], ids, tmp_path / "no.jsonl")
    with pytest.raises(ValueError, match="answers question 1 once more"):
        merge_answers((parts[0], parts[0]), ids, tmp_path / "no.jsonl")
    with pytest.raises(ValueError, match="question 5, which the benchmark does not ask"):
        merge_answers(parts, ids[:4], tmp_path / "no.jsonl")
    assert not (tmp_path / "no.jsonl").exists()
