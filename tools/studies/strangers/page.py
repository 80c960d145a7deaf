"""docs/results/strangers.md: what was measured and how, before the table."""
import datetime

import faults
import rows

PATH = rows.ROOT / "docs/results/strangers.md"

HEAD = """# Random networks that nobody had seen

Date: {date}. QAIRT 2.51.0, HTP simulator on x86-64. Made by `tools/studies/strangers/run`.
{note}

* The networks have 3 to 12 operators, as vision networks and transformers of phones have them. About 60 % have uint8 activations, the
  others uint16. Half are quantised by ONNX Runtime with Qualcomm's configuration. The others have quantisers as AIMET places them, one after
  every operator. Weights are uint8 or int8, with one scale for the tensor or for each channel. A seed says everything about a network.
* The generator was written by somebody who had not read the code that it judges.
* Each network is captured on the CPU, gen1 and gen3, every fourth one on gen5, too. These devices are healthy: each layer that is called
  faulty is a false alarm, or a defect of the SDK. The table names those that npudiff knows as defects of the SDK, and
  tensors whose record is proven wrong by a layer that computed from other values.
* *Explained in every value*: `explain` says that the layer follows known arithmetic, or that it has a known defect of the SDK, and
  that every value is the one that this predicts.
  *Operators without arithmetic*: `is_covered` is false in the JSON. *From values alone*: `explain --hide-placement`.
* A fault is put into one layer of the model, the simulator runs the changed model, and `explain` judges the values against the model without
  the fault. At least {least} values of the layer change by {far8} LSB or more (uint16: {far16} LSB, the same share of the range). The values go
  through `npudiff import numpy`, with the chipset as a fact, because a capture can only be explained against its own model.
* Numbers in brackets are 95 % intervals (Clopper and Pearson), in per cent. They take layers as independent; those of one network are not
  quite. Times are processor time, of `capture` and of `explain`.
* The kind of a fault is judged only where `explain` has a name for what was done.

The rest of the page was printed by the study.

---

"""


def write(text, note):
    head = HEAD.format(date=datetime.date.today().isoformat(), note=note, least=faults.LEAST_FAR, far8=faults.FAR[8], far16=faults.FAR[16])
    PATH.write_text(head + text)
