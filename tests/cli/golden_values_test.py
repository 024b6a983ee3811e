"""The goldens' schedules, corpora, batches and counts against values that are
computed here, from the documents and published algorithms alone."""

import math
import pathlib
import tomllib
import unittest

import h5py
import numpy

from sealed_log import xxh3

CURVES = pathlib.Path(__file__).resolve().parents[2] / "golden" / "curves"


def learning_rate(train, step):
    """docs/model.md, section 11; torchtitan's linear_warmup_stable_decay."""
    total = train["steps"]
    warmup = min(train["warmup_steps"], total)
    decay = total - warmup
    if "decay_ratio" in train:
        decay = min(round(total * train["decay_ratio"]), decay)  # half to even
    stable = total + 1 - warmup - decay
    done = step - 1
    if done < warmup:
        return train["lr"] * (done + 1) / warmup
    if done < warmup + stable:
        return train["lr"]
    progress = (done + 1 - warmup - stable) / decay
    shape = {"linear": 1 - progress, "sqrt": 1 - math.sqrt(progress),
             "cosine": 0.5 * (1 + math.cos(math.pi * progress))}[train["decay_type"]]
    floor = train["min_lr_factor"]
    return train["lr"] * (floor + (1 - floor) * shape)


def philox_bits(seed, stream, indices):
    """64 bits for each index: Philox4x32-10 (Salmon and others, SC 2011), counter
    (index, stream), key seed, words 0 and 1."""
    indices = numpy.asarray(indices, dtype=numpy.uint64)
    low = numpy.uint64(0xFFFFFFFF)
    half = numpy.uint64(32)
    stream = numpy.full(indices.shape, stream, dtype=numpy.uint64)
    c = [indices & low, indices >> half, stream & low, stream >> half]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0 = numpy.uint64(0xD2511F53) * c[0]
        p1 = numpy.uint64(0xCD9E8D57) * c[2]
        c = [(p1 >> half) ^ c[1] ^ numpy.uint64(k0), p1 & low,
             (p0 >> half) ^ c[3] ^ numpy.uint64(k1), p0 & low]
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c[1] << half | c[0]


def below(bits, bound):
    return int(bits) * bound >> 64


def stream_id(name):
    return xxh3(name.encode())


def permutation(seed, context, size):
    """Fisher and Yates, from the end."""
    bits = philox_bits(seed, stream_id(f"synthetic/permutation/{context}"),
                       range(size))
    values = list(range(size))
    for i in range(size, 1, -1):
        j = below(bits[i - 1], i)
        values[i - 1], values[j] = values[j], values[i - 1]
    return values


def synthetic_tokens(data, vocabulary):
    """docs/experiment.md, [data]: x_t = (pi_c[x_(t-1)] + e_t) mod V."""
    contexts = 4 if data["order"] == 2 else 1
    tables = [permutation(data["seed"], c, vocabulary) for c in range(contexts)]
    bits = philox_bits(data["seed"], stream_id("synthetic/noise"),
                       range(data["tokens"]))
    tokens = []
    previous = older = 0
    for word in bits.tolist():
        noise = min(64 - word.bit_length(), data["noise_levels"] - 1)
        token = (tables[older % contexts][previous] + noise) % vocabulary
        older, previous = previous, token
        tokens.append(token)
    return numpy.array(tokens, dtype="<i4")


def corpus_of(experiment, folder):
    data = experiment["data"]
    if data["source"] == "synthetic":
        return synthetic_tokens(data, experiment["model"]["vocab_size"])
    if data["source"] == "tokens":
        kind = "<u4" if data["token_type"] == "uint32" else "<u2"
        return numpy.concatenate([
            numpy.fromfile(folder / path, kind) for path in data["paths"]]).astype("<i4")
    return None


def batch_digest(corpus, experiment, seed, step):
    length = experiment["data"]["sequence_length"]
    count = experiment["train"]["sequences_per_batch"]
    training = len(corpus) - int(experiment["data"]["held_out_share"] * len(corpus))
    bits = philox_bits(seed, stream_id("batches"),
                       [(step << 32) + b for b in range(count)])
    starts = [below(word, training - length) for word in bits]
    tokens = [corpus[s:s + length] for s in starts]
    labels = [corpus[s + 1:s + 1 + length] for s in starts]
    return xxh3(numpy.concatenate(tokens + labels).tobytes())


class GoldenValues(unittest.TestCase):
    def logs(self):
        files = sorted(CURVES.glob("*/*.h5"))
        self.assertGreater(len(files), 2)
        for path in files:
            with self.subTest(log=f"{path.parent.name}/{path.name}"), \
                    h5py.File(path) as log:
                text = log.attrs["experiment_text"]
                text = text.decode() if isinstance(text, bytes) else text
                yield path, log, tomllib.loads(text)

    def test_learning_rates_are_those_of_the_formula(self):
        shapes = set()
        for _, log, experiment in self.logs():
            train = experiment["train"]
            shapes.add(train["decay_type"])
            for step, rate in zip(log["steps/step"][()], log["steps/lr"][()]):
                # A few operations in double precision.
                self.assertAlmostEqual(rate / learning_rate(train, int(step)), 1,
                                       delta=1e-13) if rate else \
                    self.assertLess(learning_rate(train, int(step)), 1e-18)
        self.assertEqual(shapes, {"linear", "sqrt", "cosine"})

    def test_batches_are_cut_from_the_corpus_of_the_formula(self):
        corpora = {}
        orders = set()
        for path, log, experiment in self.logs():
            data = experiment["data"]
            key = (path.parent.name, str(data))
            if key not in corpora:
                corpora[key] = corpus_of(experiment, path.parent)
            if corpora[key] is None:
                continue
            orders.add((data["source"], data.get("order")))
            digests = log["steps/batch_digest"][()].astype("<u8")
            for step, digest in zip(log["steps/step"][()], digests):
                # The first ones, and beyond what a byte or ten bits count.
                if step > 5 and step % 100 > 1 and step % 256 > 1:
                    continue
                self.assertEqual(
                    int(digest),
                    batch_digest(corpora[key], experiment, int(log.attrs["seed"]),
                                 int(step)), f"step {step}")
        self.assertEqual(orders, {("synthetic", 1), ("synthetic", 2), ("tokens", None)})

    def test_no_digest_is_zero(self):
        for _, log, experiment in self.logs():
            self.assertTrue((log["steps/batch_digest"][()] != 0).all())
            if "routing_digest" in log["moe"]:
                self.assertTrue((log["moe/routing_digest"][()] != 0).all())
            rows = log["tensors/digest"][()] if "digest" in log["tensors"] else []
            every = experiment["log"]["digests_every"]
            first = experiment["log"]["digests_first"]
            for step, row in zip(log["tensors/step"][()], rows):
                due = step <= first or (every > 0 and step % every == 0)
                if due:
                    self.assertTrue((row != 0).all(), f"step {step}")

    def test_counts_add_up(self):
        meshed = 0
        for path, log, experiment in self.logs():
            tokens = experiment["train"]["sequences_per_batch"] * \
                experiment["data"]["sequence_length"]
            steps = log["steps/step"][()]
            numpy.testing.assert_array_equal(log["steps/tokens_seen"][()],
                                             steps * tokens)
            if "tokens_per_expert" in log["moe"]:
                chosen = log["moe/tokens_per_expert"][()].sum(axis=-1)
                self.assertTrue(
                    (chosen == tokens * experiment["model"]["top_k"]).all())
            exchange = log["exchange"]
            if "bytes_sent" not in exchange or not len(exchange["step"]):
                continue
            meshed += 1
            sent = exchange["bytes_sent"][()].sum(axis=1)
            numpy.testing.assert_array_equal(
                sent, exchange["bytes_received"][()].sum(axis=1))
            numpy.testing.assert_array_equal(
                sent, exchange["bytes_to_self"][()] +
                exchange["bytes_within_nodes"][()] +
                exchange["bytes_between_nodes"][()])
            if "tokens_per_expert" in log["moe"]:
                self.assertTrue((sent > 0).all())
            pairs = log["exchange_pairs"]
            # They are written down at evaluations, before which a run may end.
            if "bytes_by_pair" not in pairs:
                self.assertEqual(path.parent.name, "nonfinite")
                continue
            self.assertEqual(sent.sum(), pairs["bytes_by_pair"][()].sum())
        self.assertGreater(meshed, 0)


if __name__ == "__main__":
    unittest.main()
