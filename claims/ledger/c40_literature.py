"""Claims about published results and models, which only the papers can confirm."""

from collections.abc import Callable

from claims.contract import BLOG, BOOK, ROFORMER, Claim, Judgement, Verdict
from claims.studies import Studies


def _says(value: str, why: str) -> Callable[[Studies], Judgement]:
    return lambda studies: Judgement(Verdict.LITERATURE, value, why)


READ = "The sources were read; nothing was computed."

CLAIMS = (
    Claim(
        40,
        "On long legal documents (CAIL2019-SCM) accuracy grows as the context grows from 512 to 1,536 "
        "tokens.",
        (BLOG, ROFORMER),
        "Accuracy at 1,536 tokens is above that at 512.",
        READ,
        "The data set, a pre-trained model in Chinese, and several seeds.",
        _says(
            "RoFormer's test accuracy is 68.29 % at 512 tokens and 69.79 % at 1,024",
            "In part. The paper has 512 and 1,024 tokens for this task, without seeds or intervals; 1,536 is "
            "the length of one stage of its pre-training. It cannot be tested here: it takes that data set "
            "and a model pre-trained in Chinese.",
        ),
    ),
    Claim(
        41,
        "BLEU on WMT14 is 26.5, 26.8 and 27.5; on GLUE RoPE gains 1.1 on MRPC and 1.9 on STS-B and is "
        "better on 3 of 6 tasks.",
        (BLOG,),
        "RoFormer's tables contain these numbers.",
        READ,
        "The paper's setup, with seeds.",
        _says(
            "BLEU 27.3 for the Transformer and 27.5 for RoFormer; MRPC 88.9 to 89.5, STS-B 85.8 to 87.0; 3 "
            "GLUE tasks won, 3 lost",
            "In part. The paper compares two models on WMT14, and the difference is 0.2 BLEU without an "
            "interval. On GLUE the gains are 0.6 and 1.2, not 1.1 and 1.9. It is better on three of six "
            "tasks, as stated, and worse on the other three.",
        ),
    ),
    Claim(
        42,
        "LLaMA 2 and 3 use base 10,000, LLaMA 3 with interpolation; PaLM 2 uses an NTK variant; GPT-NeoX "
        "uses RoPE with flash attention.",
        (BOOK,),
        "The models' reports and published settings say so.",
        READ,
        "Nothing: the settings are published, except PaLM 2's.",
        _says(
            "LLaMA 2: 10,000; LLaMA 3: 500,000, no interpolation (3.1 rescales by parts); GPT-NeoX-20B: "
            "RoPE on a quarter of the width",
            "In part. It is true of LLaMA 2 but not of LLaMA 3. PaLM 2's report does not say which positions "
            "it uses. GPT-NeoX-20B uses RoPE, and its report is older than the flash kernels.",
        ),
    ),
)  # fmt: skip
