"""What indexd knows of English: which words only hold a sentence together, and which belong
together because they share a stem."""

from __future__ import annotations

from functools import lru_cache

import Stemmer

# Articles, pronouns, auxiliaries, conjunctions, question words and the commonest prepositions:
# a question is full of them, and no answer is found by them.
STOP_WORDS = frozenset(
    b"a about after again all also am an and any are as at be because been before being both but by"
    b" can could did do does doing done for from had has have having he her here hers him his how i"
    b" if in into is it its just like me might more most must my no nor not of off on once only or"
    b" other our out over own shall she should so some such than that the their them then there"
    b" these they this those through to too under until up us very was we were what when where"
    b" which while who whom why will with would you your".split()
)
# Shorter stems belong to names and abbreviations, longer words are not English.
MIN_STEM, MAX_WORD = 3, 24
# What English puts after a stem, as the stemmer leaves it; by far the most words of one stem
# differ by these alone. The last letter of a stem may be doubled before a vowel (run, running),
# and a stem's last i stands for y (tri, trying).
_ENDINGS = (
    *("", "s", "e", "es", "ed", "d", "ing", "ings", "er", "ers", "or", "ors", "y", "ly", "ely"),
    *("ion", "ions", "ional", "ation", "ations", "ication", "ications"),
    *("ate", "ates", "ated", "ating", "ator", "ators", "ative"),
    *("al", "als", "ally", "ive", "ives", "ively", "ic", "ics", "ical", "ically", "ity", "ities"),
    *("able", "ably", "ability", "ible", "ibility", "ful", "fully", "ous", "ously"),
    *("ent", "ents", "ently", "ence", "ences", "ency", "ant", "antly", "ance", "ances"),
    *("ize", "izes", "ized", "izing", "izer", "ization", "ise", "ised", "ising", "ism", "ist"),
    *("ment", "ments", "ement", "ements", "ness", "eness", "ered", "ering"),
)
_DOUBLING = ("ed", "ing", "er", "ers", "y", "able")
_AFTER_Y = ("y", "ys", "ying", "yer", "yers")

_stemmer = Stemmer.Stemmer("english", 0)


def stem(word: bytes) -> str:
    """Return the stem of a word in lower-case ASCII letters; empty for any other term."""
    if len(word) > MAX_WORD or not (word.isascii() and word.isalpha() and word.islower()):
        return ""
    found: str = _stemmer.stemWord(word.decode())
    return found if len(found) >= MIN_STEM else ""


@lru_cache(maxsize=4096)
def forms(stem_: str) -> tuple[bytes, ...]:
    """Return the words that have this stem and one of the usual endings, in a fixed order."""
    candidates = [stem_ + ending for ending in _ENDINGS]
    candidates += [stem_ + stem_[-1] + ending for ending in _DOUBLING]
    if stem_.endswith("i"):
        candidates += [stem_[:-1] + ending for ending in _AFTER_Y]
    same = (word for word in candidates if _stemmer.stemWord(word) == stem_)
    return tuple(word.encode() for word in dict.fromkeys(same))
