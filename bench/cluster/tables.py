"""Tables of figures in Markdown."""

import statistics


def spread(values, digits=2):
    """Returns "1.23 (1.21 to 1.25)": the median, the least and the most."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def quotients(one, other):
    """Returns the quotients of two lists, element by element."""
    return [a / b for a, b in zip(one, other)]


def print_table(titles, rows):
    """Prints a table in Markdown. Cells are texts."""
    print("\n| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
