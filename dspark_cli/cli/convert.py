"""``dspark convert``: a drafter that was published in another shape, for mainline llama.cpp."""

from pathlib import Path

from dspark_cli.cli import convert_params as options
from dspark_cli.cli import params
from dspark_cli.cli.llama import require_llama
from dspark_cli.cli.out import check_out
from dspark_cli.errors import UsageError
from dspark_cli.models import find_target
from dspark_cli.render.conversion import ConversionProgress, conversion_table
from dspark_cli.render.jsonl import JsonWriter
from dspark_cli.render.messages import note, show_answer
from dspark_cli.render.streams import answer_stream


def convert(
    source: options.Source,
    model: params.TrainedModel,
    out: options.Out,
    out_type: options.OutType = options.OutTypeChoice.keep,
    share_target: options.ShareTarget = False,
    no_verify: options.NoVerify = False,
    threads: params.Threads = None,
    force: options.Force = False,
    json_document: params.Json = False,
) -> int:
    """Write the drafter IN, made for MODEL, to OUT as llama.cpp's dflash, and compare the two."""
    target = find_target(model)
    check_out(out, force=force)
    check_apart(out, source, target)
    if threads is not None and threads < 1:
        raise UsageError(f"--threads wants 1 or more, got {threads}")
    from dspark_cli.convert.plan import plan_from

    plan = plan_from(source, target, out_type=out_type.value, share_target=share_target)
    require_llama()
    from dspark_cli.convert.pipeline import carry_out
    from dspark_cli.native.interrupt import ctrl_c_raises, ctrl_c_sets_flag

    with ctrl_c_sets_flag(), ctrl_c_raises(), ConversionProgress.on_stderr() as progress:
        conversion = carry_out(plan, out, verify=not no_verify, threads=threads, progress=progress)
    document = conversion.as_json()
    if json_document:
        JsonWriter(answer_stream()).write(document, indent=2)
    else:
        for remark in conversion.notes:
            note(remark)
        show_answer(conversion_table(document))
    return 0


def check_apart(out: Path, source: Path, target: Path) -> None:
    """Refuse to replace what is read."""
    for name, path in (("IN", source), ("the target", target)):
        try:
            same = out.samefile(path)
        except OSError:  # one of them is not there, which its reader will explain
            continue
        if same:
            raise UsageError(f"-o {out}: is {name} itself", hint="give another name")
