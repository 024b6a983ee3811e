#include "isoloss/model/attention_core.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "isoloss/kernels/causal_products.h"
#include "isoloss/kernels/prepare.h"
#include "isoloss/model/graph.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;
using kernels::KeysOf;
using kernels::Operand;
using kernels::QueriesOf;
using kernels::ScoreBlock;
using kernels::ScoreWave;
using precision::GemmRole;

/// A thread's share of a wave has this many scores, so that they stay in its
/// cache.
constexpr size_t kWaveScores = size_t{1} << 16;
/// In a memory that is not the host's, a wave has work for a whole device.
constexpr size_t kDeviceWaveScores = size_t{1} << 25;

size_t CountQuantized(
    std::initializer_list<const precision::GemmPrecision*> products) {
  return static_cast<size_t>(std::ranges::count_if(
      products, [](const auto* product) { return product->quantized(); }));
}

/// Holds the state of one call of AttentionCore.
class AttentionPass {
 public:
  AttentionPass(const AttentionInputs& in, const AttentionSite& scores,
                const AttentionSite& values, bool quantizes, GemmQueue& gemms,
                Executor& executor, AttentionCore::Scratch& scratch)
      : in_(in),
        scores_(scores),
        values_(values),
        quantizes_(quantizes),
        packs_(!quantizes && executor.memory().is_host()),
        gemms_(gemms),
        executor_(executor),
        s_(scratch) {
    s_.plan.List({in_.document_ends, in_.queries.heads, quantizes_,
                  executor_.memory().is_host()
                      ? kWaveScores * static_cast<size_t>(executor_.size())
                      : kDeviceWaveScores});
    if (packs_) PackColumns(in_.keys, s_.keys);
  }

  void Forward(const HeadColumns<float>& out) {
    ForEachWave([&](const ScoreWave& wave) {
      if (quantizes_) {
        QueueScores(wave);
        gemms_.Run();
      } else {
        const kernels::ScoreProduct scores = Scores();
        kernels::CausalScores(wave, {&scores, 1}, executor_);
      }
      kernels::CausalSoftmaxForward(wave, Probabilities(), in_.scale,
                                    executor_);
      if (quantizes_) {
        QueueOutputs(wave, out);
        gemms_.Run();
      } else {
        const kernels::QueryProduct product = {Probabilities(), in_.values,
                                               out};
        kernels::CausalProducts(
            wave, {.of_queries = {&product, 1}, .rounding = in_.rounding},
            executor_);
      }
    });
  }

  void Backward(const HeadColumns<const float>& dout,
                const AttentionGradients& to) {
    if (packs_) PackColumns(in_.values, s_.values);
    ForEachWave([&](const ScoreWave& wave) {
      if (quantizes_) {
        QueueScores(wave);
        QueueProbabilityGradients(wave, dout);
        gemms_.Run();
      } else {
        const kernels::ScoreProduct products[] = {
            Scores(), {dout, in_.values, s_.values, Gradients()}};
        kernels::CausalScores(wave, products, executor_);
      }
      kernels::CausalSoftmaxForward(wave, Probabilities(), in_.scale,
                                    executor_);
      const std::span<const float> read = ReadProbabilities(wave);
      kernels::CausalSoftmaxBackward(wave, {Probabilities(), read, Gradients()},
                                     in_.scale, executor_);
      if (quantizes_) {
        QueueGradients(wave, dout, to);
        gemms_.Run();
      }
      ComputeGradients(wave, dout, to);
    });
  }

 private:
  void PackColumns(const HeadColumns<const float>& columns,
                   std::vector<kernels::PackedOperand>& packed) {
    packed.resize(in_.document_ends.size() * in_.queries.heads);
    executor_.ParallelFor(packed.size(), [&](size_t number) {
      const size_t document = number / in_.queries.heads;
      const size_t begin = document == 0 ? 0 : in_.document_ends[document - 1];
      packed[number].Pack({columns.Of(number % in_.queries.heads, begin,
                                      in_.document_ends[document] - begin)});
    });
  }

  template <typename Use>
  void ForEachWave(const Use& use) {
    const auto resize = [this](size_t scores) {
      s_.probabilities.ResizeUninitialized(1, scores);
      s_.gradients.ResizeUninitialized(1, scores);
    };
    resize(s_.plan.most_scores());
    for (size_t i = 0; i < s_.plan.size(); ++i) {
      const ScoreWave wave = s_.plan.Wave(i);
      resize(wave.scores());
      use(wave);
      s_.states.clear();
    }
  }

  std::span<float> Probabilities() const {
    return {s_.probabilities.data(), s_.probabilities.size()};
  }
  std::span<float> Gradients() const {
    return {s_.gradients.data(), s_.gradients.size()};
  }
  kernels::ScoreProduct Scores() const {
    return {in_.queries, in_.keys, s_.keys, Probabilities()};
  }

  void QueueScores(const ScoreWave& wave) {
    for (const ScoreBlock& b : wave.blocks) {
      QueueScores(scores_, GemmRole::kFprop, b, QueriesOf(in_.queries, b),
                  KeysOf(in_.keys, b), b.Of(Probabilities()));
    }
  }

  void QueueProbabilityGradients(const ScoreWave& wave,
                                 const HeadColumns<const float>& dout) {
    for (const ScoreBlock& b : wave.blocks) {
      QueueScores(values_, GemmRole::kDgrad, b, QueriesOf(dout, b),
                  KeysOf(in_.values, b), b.Of(Gradients()));
    }
  }

  /// c = left right^T, which has the shape of the scores.
  void QueueScores(const AttentionSite& site, GemmRole role,
                   const ScoreBlock& b, MatrixView<const float> left,
                   MatrixView<const float> right, MatrixView<float> c) {
    gemms_.AddInner({.a = Left(site, role, b, left),
                     .b = Right(site, role, b, right, Contraction::kColumns),
                     .c = c});
  }

  void QueueOutputs(const ScoreWave& wave, const HeadColumns<float>& out) {
    for (const ScoreBlock& b : wave.blocks) {
      gemms_.AddInner(
          {.a = Left(values_, GemmRole::kFprop, b, b.Of(Probabilities())),
           .b = Right(values_, GemmRole::kFprop, b, KeysOf(in_.values, b),
                      Contraction::kRows),
           .c = QueriesOf(out, b),
           .rounding = in_.rounding});
    }
  }

  /// Returns the probabilities as P V reads them.
  std::span<const float> ReadProbabilities(const ScoreWave& wave) {
    const auto* quantization = values_.precision.fprop.left_operand();
    if (quantization == nullptr) return Probabilities();
    s_.read.CopyFrom(s_.probabilities);
    const std::span<float> read(s_.read.data(), s_.read.size());
    std::vector<kernels::TensorToQuantize> tensors;
    for (const ScoreBlock& b : wave.blocks) {
      tensors.push_back(
          {b.Of(read), quantization,
           StateFor(values_, GemmRole::kFprop, OperandSide::kLeft, b).Of(0)});
    }
    kernels::QuantizeTensors(tensors, executor_);
    return read;
  }

  /// Queues dQ. Queues dK and dV as one product each, but only if the product
  /// has a quantised operand.
  void QueueGradients(const ScoreWave& wave,
                      const HeadColumns<const float>& dout,
                      const AttentionGradients& to) {
    for (const ScoreBlock& b : wave.blocks) {
      const MatrixView<const float> p = b.Of(Probabilities());
      const MatrixView<const float> ds = b.Of(Gradients());
      gemms_.AddInner({.a = Left(scores_, GemmRole::kDgrad, b, ds),
                       .b = Right(scores_, GemmRole::kDgrad, b,
                                  KeysOf(in_.keys, b), Contraction::kRows),
                       .c = QueriesOf(to.queries, b),
                       .rounding = in_.rounding});
      if (values_.precision.wgrad.quantized()) {
        gemms_.AddInner(
            {.a = Right(values_, GemmRole::kWgrad, b, p, Contraction::kRows),
             .b = Left(values_, GemmRole::kWgrad, b, QueriesOf(dout, b),
                       Contraction::kRows),
             .c = KeysOf(to.values, b),
             .rounding = in_.rounding});
      }
      if (scores_.precision.wgrad.quantized()) {
        gemms_.AddInner(
            {.a = Left(scores_, GemmRole::kWgrad, b, ds, Contraction::kRows),
             .b = Right(scores_, GemmRole::kWgrad, b, QueriesOf(in_.queries, b),
                        Contraction::kRows),
             .c = KeysOf(to.keys, b),
             .rounding = in_.rounding});
      }
    }
  }

  /// Computes the gradients whose products are not quantised.
  void ComputeGradients(const ScoreWave& wave,
                        const HeadColumns<const float>& dout,
                        const AttentionGradients& to) {
    const kernels::QueryProduct of_queries = {Gradients(), in_.keys,
                                              to.queries};
    const kernels::KeySum sums[] = {{Probabilities(), dout, to.values},
                                    {Gradients(), in_.queries, to.keys}};
    const size_t first = values_.precision.wgrad.quantized() ? 1 : 0;
    const size_t end = scores_.precision.wgrad.quantized() ? 1 : 2;
    kernels::CausalProducts(wave,
                            {.of_queries = {&of_queries, quantizes_ ? 0u : 1u},
                             .of_keys = {sums + first, end - first},
                             .rounding = in_.rounding},
                            executor_);
  }

  Operand Left(const AttentionSite& site, GemmRole role, const ScoreBlock& b,
               MatrixView<const float> values,
               Contraction contraction = Contraction::kColumns) {
    return Read(site, role, OperandSide::kLeft, b, {values, contraction});
  }
  Operand Right(const AttentionSite& site, GemmRole role, const ScoreBlock& b,
                MatrixView<const float> values, Contraction contraction) {
    return Read(site, role, OperandSide::kRight, b, {values, contraction});
  }
  Operand Read(const AttentionSite& site, GemmRole role, OperandSide side,
               const ScoreBlock& b, Operand operand) {
    const precision::GemmPrecision& precision = site.precision.For(role);
    operand.quantization = side == OperandSide::kLeft
                               ? precision.left_operand()
                               : precision.right_operand();
    if (operand.quantization != nullptr &&
        operand.quantization->needs_state()) {
      operand.state = &s_.states.emplace_back(StateFor(site, role, side, b));
    }
    return operand;
  }
  kernels::OperandState StateFor(const AttentionSite& site, GemmRole role,
                                 OperandSide side, const ScoreBlock& b) const {
    return StateOf(in_.key, site.name, role, side, /*group=*/0,
                   (in_.first_token + b.begin) * in_.queries.heads + b.head);
  }

  const AttentionInputs& in_;
  const AttentionSite& scores_;
  const AttentionSite& values_;
  const bool quantizes_;
  const bool packs_;  // right sides in panels, which only the host reads
  GemmQueue& gemms_;
  Executor& executor_;
  AttentionCore::Scratch& s_;
};

}  // namespace

AttentionCore::AttentionCore(const precision::AttentionPrecision& precision,
                             const std::string& site, GemmQueue& gemms,
                             Executor& executor, Scratch& scratch)
    : quantizes_(precision.quantizes()),
      scores_{precision.Scores(), site + kAttentionScores},
      values_{precision.Values(), site + kAttentionValues},
      gemms_(gemms),
      executor_(executor),
      scratch_(scratch) {}

size_t AttentionCore::quantized_forward() const {
  return CountQuantized({&scores_.precision.fprop, &values_.precision.fprop});
}

size_t AttentionCore::quantized_backward() const {
  return CountQuantized({&scores_.precision.dgrad, &scores_.precision.wgrad,
                         &values_.precision.dgrad, &values_.precision.wgrad});
}

void AttentionCore::Forward(const AttentionInputs& in,
                            const HeadColumns<float>& out) {
  AttentionPass(in, scores_, values_, quantizes_, gemms_, executor_, scratch_)
      .Forward(out);
  if (quantizes_) gemms_.CountOthers(quantized_forward(), 2);
}

void AttentionCore::Backward(const AttentionInputs& in,
                             const HeadColumns<const float>& dout,
                             const AttentionGradients& gradients) {
  AttentionPass(in, scores_, values_, quantizes_, gemms_, executor_, scratch_)
      .Backward(dout, gradients);
  if (quantizes_) gemms_.CountOthers(quantized_backward(), 4);
}

}  // namespace isoloss::model
