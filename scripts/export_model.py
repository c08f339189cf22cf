"""Writes a policy of a run as a Hugging Face folder: weights, config.json, tokenizer, chat template.

python scripts/export_model.py --run runs/quickstart --policy rl --out exported/quickstart

Adapters (lora.rank) are added into the weights, or with --adapters written alone, for the peft library.
"""

from __future__ import annotations

import argparse
import sys

from jaxmtrl.errors import JaxmtrlError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True, metavar="DIR", help="run folder")
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write; must not exist")
    parser.add_argument(
        "--policy",
        default="latest",
        choices=("latest", "untrained", "pretrain", "sft", "rl"),
        help="policy at the end of a stage, or of the newest checkpoint (default)",
    )
    parser.add_argument(
        "--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"), help="of the weights"
    )
    parser.add_argument("--adapters", action="store_true", help="write the adapters alone, as a peft folder")
    parsed = parser.parse_args()
    try:
        from jaxmtrl.replay import export_run

        export_run(parsed.run, parsed.out, policy=parsed.policy, dtype=parsed.dtype, adapters=parsed.adapters)
    except JaxmtrlError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    how = "peft.PeftModel.from_pretrained(model, " if parsed.adapters else "AutoModelForCausalLM.from_pretrained("
    print(f"{parsed.out} is ready: {how}{parsed.out!r})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
