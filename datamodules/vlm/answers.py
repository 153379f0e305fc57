"""Files of answers to a benchmark: JSON lines ``{"id": 1, "answer": "Yes"}`` in the order of the questions."""

import json
from collections.abc import Sequence
from pathlib import Path

from datamodules.roots import written_whole

Id = int | str


def write_answers(path: str | Path, ids: Sequence[Id], answers: Sequence[str]) -> None:
    """Write a file of answers whole or not at all.

    Args:
        path: file, replaced if it is there.
        ids: id of each question.
        answers: its answer.

    Raises:
        ValueError: if there are not as many answers as ids; names the first id without one.
    """
    _check_count(len(answers), ids, "the list of answers")
    lines = [json.dumps({"id": name, "answer": answer}, ensure_ascii=False) for name, answer in zip(ids, answers, strict=True)]
    with written_whole(Path(path).expanduser()) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_answers(path: str | Path, ids: Sequence[Id], id_key: str = "id", answer_key: str = "answer") -> list[str]:
    """Read the answers to these questions, in this order.

    Args:
        path: file of JSON lines.
        ids: ids of the questions in the order of the benchmark.
        id_key: key of an id in a line, such as ``question_id`` in files of other programs.
        answer_key: key of an answer, such as ``text``.

    Raises:
        ValueError: if a line is damaged, or ids differ in number or order; names the first wrong id.
    """
    path = Path(path).expanduser()
    found = _read_lines(path, id_key, answer_key)
    for line, ((got, _), expected) in enumerate(zip(found, ids, strict=False), start=1):
        if got != expected:
            raise ValueError(
                f"{path}, line {line} answers question {got!r}, expected {expected!r}: answers must be in the questions' order"
            )
    _check_count(len(found), ids, str(path), [name for name, _ in found])
    return [answer for _, answer in found]


def merge_answers(paths: Sequence[str | Path], ids: Sequence[Id], target: str | Path) -> None:
    """Join the files that several processes wrote into one in the order of the questions.

    Args:
        paths: files, each with some of the answers in any order.
        ids: ids of all questions in the order of the benchmark.
        target: file to write.

    Raises:
        ValueError: if a question is unknown, answered twice or not answered; names the first.
    """
    known, answers = set(ids), dict[Id, str]()
    for path in map(Path, paths):
        for name, answer in _read_lines(path, "id", "answer"):
            if name not in known:
                raise ValueError(f"{path} answers question {name!r}, which the benchmark does not ask")
            if name in answers:
                raise ValueError(f"{path} answers question {name!r} once more")
            answers[name] = answer
    missing = next((name for name in ids if name not in answers), None)
    if missing is not None:
        raise ValueError(f"question {missing!r} is answered in none of {', '.join(map(str, paths))}")
    write_answers(target, ids, [answers[name] for name in ids])


def _read_lines(path: Path, id_key: str, answer_key: str) -> list[tuple[Id, str]]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            name, answer = record[id_key], record[answer_key]
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}, line {number} is no JSON object with {id_key!r} and {answer_key!r}") from error
        if not isinstance(answer, str):
            raise ValueError(f"{path}, line {number}: the answer to question {name!r} is no text but {answer!r}")
        found.append((name, answer))
    return found


def _check_count(count: int, ids: Sequence[Id], where: str, names: Sequence[Id] = ()) -> None:
    if count < len(ids):
        raise ValueError(f"{where} has {count} answers to {len(ids)} questions: question {ids[count]!r} has none")
    if count > len(ids):
        extra = f": question {names[len(ids)]!r} is not asked" if names else ""
        raise ValueError(f"{where} has {count} answers to {len(ids)} questions{extra}")
