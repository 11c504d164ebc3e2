"""What `mt evaluate --behaviours` shows."""

from typing import TYPE_CHECKING

from typer import echo

from mt.cli.logs import say

if TYPE_CHECKING:
    from mt.evaluation.behaviours import Behaviours


def show_behaviours(found: "Behaviours") -> None:
    """Print a table, the worst lines, and what helps where the model is poor."""
    say(f"{found.checkpoint}, {found.data}: as mt translate, greedy, by {found.engine}")
    echo(f"{'':22}  lines   score  95 % interval      lower by")
    for each in found.behaviours:
        low, high = each.interval
        unit = "BLEU" if each.measure == "BLEU" else "%"
        echo(
            f"{each.name:22}  {each.num_lines:5,}  {each.value:6.2f}  {low:6.2f} to {high:6.2f}  "
            f"{each.drop:8.2f}  {unit}".rstrip()
        )
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
