"""`mt evaluate`: score the translations of a run, and show what it translates badly."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option, echo

from mt import processes
from mt.cli import options
from mt.cli.logs import say
from mt.cli.tables import FormatOption, JsonFlag, TableForm, print_json, print_table
from mt.display import counted
from mt.errors import ConfigError, SplitError
from mt.files import write_atomically

if TYPE_CHECKING:
    from mt.evaluation.evaluate import Evaluation
    from mt.evaluation.record import Behaviours


def evaluate(
    run: Annotated[
        list[Path] | None,
        options.run_option(
            metavar="RUN ...", help="The run, or several, by name or path. Default: the newest run in runs/."
        ),
    ] = None,
    to: options.ToOption = None,
    source: options.FromOption = None,
    ensemble: options.EnsembleOption = None,
    split: options.SplitOption = "test",
    data: options.TestSetOption = None,
    name: options.TestSetNameOption = None,
    beam: options.BeamOption = 1,
    length_penalty: options.LengthPenaltyOption = 1.0,
    length_normalization: options.LengthNormalizationOption = "gnmt",
    checkpoint: options.CheckpointOption = "best",
    literature: Annotated[
        bool, Option(help="Also report BLEU on lower-cased, Moses-tokenised text.")
    ] = False,
    scores_only: Annotated[bool, Option(help="Leave out the table of sentence lengths.")] = False,
    behaviours: Annotated[
        bool,
        Option(help="Instead, show how it copes with capitals, typing errors, names and more."),
    ] = False,
    worst: Annotated[int, Option(min=0, metavar="N", help="Show the N worst sentences.")] = 0,
    json: JsonFlag = False,
    outputs: Annotated[
        Path | None, Option(help="A folder for sources, hypotheses and references as lines, for other tools.")
    ] = None,
    device: options.DeviceOption = "auto",
    precision: options.PrecisionOption = "float32",
    engine: options.EngineOption = "torch",
    table: FormatOption = None,
    fail_under: Annotated[
        float | None,
        Option(min=0.0, max=100.0, metavar="BLEU", help="End with exit code 1 if any run has less BLEU."),
    ] = None,
) -> None:
    """Translate a test set and score the translations with BLEU, chrF2++ and TER.

    Shows each score with signature and 95 % interval, and scores by sentence length; of several runs, a
    table. A model of several directions is scored in each, unless --to, --from or --data is given.

    The translations are saved in the run directory. Scores of a single model, not of an ensemble,
    are also added to evaluations.jsonl.
    """
    options.check_excludes("--json", json, format=table)
    directories = [options.find_run(path) for path in run or (None,)]
    if len(directories) > 1:
        if behaviours or processes.ARE_SEVERAL:
            raise ConfigError("--behaviours, or torchrun, is for one run: give one.")
        table = table or "text"
    options.check_excludes("--worst", worst, format=table)
    strategy = options.choose_beam(beam, length_penalty, length_normalization)
    options.check_excludes("--behaviours", behaviours, beam=strategy, literature=literature, outputs=outputs)
    options.check_excludes("--behaviours", behaviours, ensemble=ensemble, format=table, fail_under=fail_under)
    from mt.config.load import load_config
    from mt.evaluation.test_set import for_file_name, load_evaluation_set

    if behaviours:
        from mt.evaluation.judge import find_behaviours
        from mt.evaluation.record import to_json
        from mt.inference.translator import Translator

        config = load_config(directories[0].config_file)
        test_set = load_evaluation_set(config, split, path=data, name=name, direction=(source, to))
        translator = Translator.from_run(directories[0], checkpoint=checkpoint, device=device)
        found = find_behaviours(translator, test_set)
        if json:
            print_json(found)
        else:
            _show_behaviours(found)
        write_atomically(directories[0].behaviours_file, to_json(found))
        return
    from mt.evaluation.evaluate import run_evaluation
    from mt.evaluation.record import mean_scores

    if literature:
        # This import takes a second.
        from mt.evaluation.literature import literature_score
    of_runs: dict[str, list[Evaluation]] = {}
    for directory in directories:
        results = of_runs[str(directory.path)] = []
        directions: Sequence[tuple[str | None, str | None]] = [(source, to)]
        # With torchrun, all processes but the first end with a translation.
        if not (source or to or data or processes.ARE_SEVERAL):
            directions = load_config(directory.config_file).data.directions
        for src, tgt in directions:
            folder = outputs
            if folder and len(directories) > 1:
                folder /= directory.name
            if folder and len(directions) > 1:
                folder /= for_file_name(f"{src}-{tgt}")
            try:
                result = run_evaluation(
                    directory,
                    tgt=tgt,
                    src=src,
                    split=split,
                    checkpoint=checkpoint,
                    device=device,
                    precision=precision,
                    engine=engine,
                    data_path=data,
                    data_name=name,
                    beam=strategy,
                    literature=literature_score if literature else None,
                    analyse=not scores_only,
                    num_worst=max(worst, 10),
                    outputs=folder,
                    others=[options.find_run(path) for path in ensemble or []],
                )
            except SplitError as error:
                if not results:
                    raise
                say(f"left out: {error}")
                continue
            results.append(result)
            models = " + ".join([f"{directory.path}, {result.checkpoint}", *result.ensemble])
            say(f"{models}, {result.data}: {result.search}, by {result.engine} in {result.precision}")
            if table is None and not json:
                if len(directions) > 1:
                    echo(f"\n{result.direction}")
                _show(result, worst)
            if folder is not None:
                say(f"for other tools: {folder}/sources.txt, hypotheses.txt, references.txt")
    if json:
        print_json([*chain(*of_runs.values())])
    elif table is not None:
        _show_table(of_runs, table)
    elif len(results) > 1:
        echo("")
        for score in mean_scores(results).values():
            echo(str(score))
    for path, results in of_runs.items():
        bleu = mean_scores(results)["bleu"].value
        if fail_under is not None and bleu < fail_under:
            say(f"{path} has {bleu:.2f} BLEU, less than --fail-under {fail_under:g}")
            raise Exit(1)


def _show_table(of_runs: "dict[str, list[Evaluation]]", form: TableForm) -> None:
    """Print a row for each run and direction; the signatures go to stderr."""
    rows = []
    signatures: dict[str, str] = {}
    for run, results in of_runs.items():
        for result in results:
            row = [run, result.direction]
            for score in result.scores.values():
                row.append(f"{score.value:.2f}")
                signatures[score.name] = score.signature
            rows.append([*row, f"{result.exact:.2f}"])
    print_table(["run", "direction", *signatures, "exact"], rows, form)
    for metric, signature in signatures.items():
        say(f"{metric} signature: {signature}")


def _show(result: "Evaluation", worst: int) -> None:
    for score in result.scores.values():
        echo(str(score))
    echo(f"exact sentences {result.exact:.2f} %")
    if (analysis := result.analysis) is not None:
        echo(f"length ratio {analysis.length_ratio:.3f} (words in the output / words in the references)")
        echo("\nsource words  sentences    BLEU  chrF2++  length ratio")
        for length in analysis.by_source_length:
            echo(
                f"{length.source_words:12}  {length.num_sentences:9,}  {length.bleu:6.2f}  "
                f"{length.chrfpp:7.2f}  {length.length_ratio:12.3f}"
            )
    for sentence in result.worst[:worst]:
        echo(f"\nsentence {sentence.number:,}, chrF2++ {sentence.chrfpp:.2f}")
        echo(f"  source       {sentence.source}")
        echo(f"  translation  {sentence.translation}")
        echo(f"  reference    {sentence.reference}")
    if result.num_rewritten:
        say(f"scored in the form of the training text: {counted(result.num_rewritten, 'reference')} changed")
    say(f"{counted(result.num_sentences, 'translation')}: {result.hypotheses_file}")
    say(f"their references: {result.references_file}")


def _show_behaviours(found: "Behaviours") -> None:
    """Print a table, the worst lines, and what helps where the model is poor."""
    say(f"{found.checkpoint}, {found.data}: as mt translate, greedy, by {found.engine}")
    rows = []
    for each in found.behaviours:
        score = f"{each.value:.2f} {each.measure}"
        interval = "{:.2f} to {:.2f}".format(*each.interval)
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
