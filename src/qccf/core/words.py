"""Numbers and nouns in sentences."""


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 round", "2 rounds", "3 studies", "10,000 clients"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def article(noun: str) -> str:
    """The article a or an, by the noun's first letter."""
    return "an" if noun[0] in "aeiou" else "a"
