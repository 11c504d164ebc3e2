"""What `mt evaluate --behaviours` shows."""

from typing import TYPE_CHECKING

from typer import echo

from mt.cli.logs import say
from mt.cli.tables import print_table

if TYPE_CHECKING:
    from mt.evaluation.behaviours import Behaviours


def show_behaviours(found: "Behaviours") -> None:
    """Print a table, the worst lines, and what helps where the model is poor."""
    say(f"{found.checkpoint}, {found.data}: as mt translate, greedy, by {found.engine}")
    rows = []
    for each in found.behaviours:
        score, interval = f"{each.value:.2f} {each.measure}", "{:.2f} to {:.2f}".format(*each.interval)
        rows.append([each.name, f"{each.num_lines:,}", score, interval, f"{each.drop:.2f}"])
    print_table(["", "lines", "score", "95 % interval", "lower by"], rows, "text")
    for each in found.behaviours:
        for example in each.examples:
            echo(f"\n{each.name}")
            echo(f"  source       {example.source}")
            echo(f"  translation  {example.translation}")
            echo(f"  wished       {example.reference}")
    for name, why in found.left_out.items():
        say(f"left out: {name}: {why}")
    for cure in found.cures:
        say(cure)
    say(f"BLEU {found.signature}")
