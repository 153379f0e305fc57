"""Words of a text and the singular of English nouns, by a few rules.

The rules know no dictionary: a regular noun ends in ``s``, with the usual changes before it, and what is irregular stands in a
list. They are made for names of things; :func:`inflect_singular` and :func:`wordnet_nouns` hand the work to a package
(``leyden[nlp]``).
"""

import re
from collections.abc import Callable
from functools import cache

WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")

IRREGULAR = {
    "axes": "axe",
    "bikinis": "bikini",
    "bookshelves": "bookshelf",
    "buses": "bus",
    "calves": "calf",
    "canoes": "canoe",
    "children": "child",
    "dice": "die",
    "feet": "foot",
    "gases": "gas",
    "geese": "goose",
    "grandchildren": "grandchild",
    "halves": "half",
    "hooves": "hoof",
    "horseshoes": "horseshoe",
    "kiwis": "kiwi",
    "knives": "knife",
    "leaves": "leaf",
    "lenses": "lens",
    "loaves": "loaf",
    "mice": "mouse",
    "minibuses": "minibus",
    "octopuses": "octopus",
    "oxen": "ox",
    "pocketknives": "pocketknife",
    "scarves": "scarf",
    "shelves": "shelf",
    "shoes": "shoe",
    "skis": "ski",
    "snowshoes": "snowshoe",
    "taxis": "taxi",
    "teeth": "tooth",
    "thieves": "thief",
    "toes": "toe",
    "walruses": "walrus",
    "wives": "wife",
    "wolves": "wolf",
    "zucchinis": "zucchini",
}
SINGULAR_IN_IE = frozenset(
    f"{stem}s"
    for stem in (
        "birdie", "bowtie", "brownie", "cookie", "die", "hoodie", "lie", "movie", "necktie", "pie", "selfie", "smoothie", "tie",
        "veggie", "zombie",
    )
)  # fmt: skip
UNCHANGED = frozenset(
    {
        "always", "binoculars", "canvas", "christmas", "clothes", "does", "eyeglasses", "gas", "goggles", "has", "headquarters",
        "lens", "means", "news", "pants", "pliers", "scissors", "series", "shorts", "species", "trousers", "was", "yes",
    }
)  # fmt: skip
MEN = re.compile(r"(?<!speci)(?<!abdo)(?<!\bo)(?<!ra)men$")
SIBILANT = re.compile(r"(?:ss|sh|ch|x|zz)es$")
CONSONANT_OES = re.compile(r"[^aeiou]oes$")


@cache
def singular(word: str) -> str:
    """Return the singular of a lower-case English noun; a word that is none, or has a capital letter, stays as it is.

    1. Irregular plurals are looked up (``children``, ``knives``, ``skis``), and words that only look like plurals are left alone.
    2. ``-men`` becomes ``-man``, ``-ies`` becomes ``-y`` (``ties`` and its like become ``tie``).
    3. ``-es`` falls after ``ss``, ``sh``, ``ch``, ``x``, ``zz`` and after a consonant and ``o`` (``glasses``, ``potatoes``).
    4. Else a last ``s`` falls, unless the word ends in ``ss``, ``us`` or ``is``.
    """
    if word in UNCHANGED or not word.islower():
        return word
    if word in IRREGULAR:
        return IRREGULAR[word]
    if MEN.search(word):
        return word[:-2] + "an"
    if word.endswith("ies") and word not in SINGULAR_IN_IE:
        return word[:-3] + "y"
    if SIBILANT.search(word) or CONSONANT_OES.search(word):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2:
        return word[:-1]
    return word


def tokenize(text: str) -> list[str]:
    """Return the words of a text in their order, as they are written; hyphens inside a word belong to it."""
    return WORD.findall(text)


def rule_nouns(text: str) -> list[str]:
    """Return the singular of every word of a text, whatever its part of speech.

    Who counts only words of a vocabulary of things needs no tagger; a verb that is spelt like a thing counts then.
    """
    return [singular(word) for word in tokenize(text)]


def inflect_singular() -> Callable[[str], str]:
    """Return a function that makes singulars with the package ``inflect``, which knows more irregular plurals (``people``).

    It takes ``bus``, ``tennis`` and ``specimen`` for plurals: a word in ``s`` or ``men`` that the rules leave alone stays.

    Raises:
        ImportError: if the package is missing; names the remedy.
    """
    try:
        import inflect
    except ImportError as error:
        raise ImportError("singulars by inflect need the package: pip install 'leyden[nlp]'") from error
    engine = inflect.engine()

    @cache
    def convert(word: str) -> str:
        if word.endswith(("s", "men")) and singular(word) == word:
            return word
        return engine.singular_noun(word) or word

    return convert


def wordnet_nouns() -> Callable[[str], list[str]]:
    """Return AMBER's own extraction: NLTK's tokenizer and tagger, and WordNet's lemma of what is tagged as a noun.

    Raises:
        ImportError: if NLTK is missing.
        LookupError: if its data are missing; NLTK's message says how to get them.
    """
    try:
        import nltk
    except ImportError as error:
        raise ImportError("nouns by NLTK need the package: pip install 'leyden[nlp]'") from error
    lemmatizer = nltk.stem.WordNetLemmatizer()

    def extract(text: str) -> list[str]:
        tagged = nltk.pos_tag(nltk.word_tokenize(text))
        return [lemmatizer.lemmatize(word) for word, tag in tagged if tag.startswith("NN")]

    extract("two dogs")  # else missing data would be noticed only at the first answer
    return extract
