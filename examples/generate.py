"""The same loop from Python: open a pair, stream the text, read the numbers."""

import dspark_cli as dspark

target, drafter = dspark.find_target("smollm2"), dspark.find_drafter("smollm2")
with dspark.open_pair(dspark.PairOptions(target, drafter)) as pair:
    prompt = dspark.chat_prompt(pair, "Explain rainbows to a child.")
    run = dspark.Generation(pair, prompt, dspark.GenerationOptions(n_predict=64))
    for text in run.text_pieces():
        print(text, end="", flush=True)
print(f"\n[tau {run.statistics.mean_acceptance_length:.2f}, {run.finish_reason}]")
