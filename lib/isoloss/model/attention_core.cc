#include "isoloss/model/attention_core.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "isoloss/kernels/prepare.h"
#include "isoloss/model/graph.h"

namespace isoloss::model {
namespace {

using kernels::Contraction;
using kernels::Operand;
using kernels::Rounding;
using precision::GemmRole;

/// A thread's share of a wave has this many scores, so that they stay in its
/// cache.
constexpr size_t kWaveScores = size_t{1} << 16;
/// In a memory that is not the host's, a wave has work for a whole device.
constexpr size_t kDeviceWaveScores = size_t{1} << 25;
constexpr size_t kScoreAlignment = 16;

size_t ScoreSize(const ScoreBlock& block) {
  return (block.rows * block.keys() + kScoreAlignment - 1) / kScoreAlignment *
         kScoreAlignment;
}

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
    ListBlocks();
    if (packs_) PackColumns(in_.keys, s_.keys);
  }

  void Forward(const HeadColumns<float>& out) {
    ForEachWave([&](std::span<const ScoreBlock> wave) {
      QueueScores(wave);
      gemms_.Run();
      kernels::CausalSoftmaxForward(s_.wave, in_.scale, executor_);
      for (size_t i = 0; i < wave.size(); ++i) {
        const ScoreBlock& b = wave[i];
        gemms_.AddInner({.a = Left(values_, GemmRole::kFprop, b, s_.wave[i].p),
                         .b = Right(values_, GemmRole::kFprop, b,
                                    KeysOf(in_.values, b), Contraction::kRows),
                         .c = QueriesOf(out, b),
                         .rounding = in_.rounding});
      }
      gemms_.Run();
    });
  }

  void Backward(const HeadColumns<const float>& dout,
                const AttentionGradients& to) {
    if (packs_) PackColumns(in_.values, s_.values);
    s_.zeros.Resize(kQueryBlock, std::max(in_.keys.width, in_.values.width));
    ForEachWave([&](std::span<const ScoreBlock> wave) {
      QueueScores(wave);
      QueueProbabilityGradients(wave, dout);
      gemms_.Run();
      kernels::CausalSoftmaxForward(s_.wave, in_.scale, executor_);
      ReadProbabilities(wave);
      kernels::CausalSoftmaxBackward(s_.wave, in_.scale, executor_);
      QueueGradients(wave, dout, to);
      RunChains(wave, dout, to);
    });
    if (in_.rounding == Rounding::kFp32) return;
    for (size_t head = 0; head < in_.queries.heads; ++head) {
      for (const HeadColumns<float>* sums : {&to.keys, &to.values}) {
        const MatrixView<float> all =
            sums->Of(head, 0, in_.document_ends.back());
        kernels::Cast(all, in_.rounding, all, executor_);
      }
    }
  }

 private:
  template <typename T>
  static MatrixView<T> QueriesOf(const HeadColumns<T>& columns,
                                 const ScoreBlock& b) {
    return columns.Of(b.head, b.begin + b.first, b.rows);
  }
  template <typename T>
  static MatrixView<T> KeysOf(const HeadColumns<T>& columns,
                              const ScoreBlock& b) {
    return columns.Of(b.head, b.begin, b.keys());
  }

  /// Lists blocks by ascending first query, because sums over blocks are added
  /// in this order.
  void ListBlocks() {
    size_t longest = 0;
    size_t begin = 0;
    for (const size_t end : in_.document_ends) {
      longest = std::max(longest, end - std::exchange(begin, end));
    }
    s_.blocks.clear();
    const size_t step = quantizes_ ? longest : kQueryBlock;
    for (size_t first = 0; first < longest; first += step) {
      begin = 0;
      size_t number = 0;
      for (const size_t end : in_.document_ends) {
        const size_t length = end - begin;
        for (size_t head = 0; head < in_.queries.heads; ++head, ++number) {
          if (first >= length) continue;
          s_.blocks.push_back(
              {number, head, begin, first, std::min(step, length - first)});
        }
        begin = end;
      }
    }
  }

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
    const size_t most =
        executor_.memory().is_host()
            ? kWaveScores * static_cast<size_t>(executor_.size())
            : kDeviceWaveScores;
    const std::span<const ScoreBlock> blocks = s_.blocks;
    for (size_t begin = 0; begin < blocks.size();) {
      size_t end = begin;
      size_t scores = 0;
      do {
        scores += ScoreSize(blocks[end++]);
      } while (end < blocks.size() && scores + ScoreSize(blocks[end]) <= most);
      const auto wave = blocks.subspan(begin, end - begin);
      PlaceScores(wave, scores);
      use(wave);
      s_.states.clear();
      begin = end;
    }
  }

  void PlaceScores(std::span<const ScoreBlock> wave, size_t scores) {
    s_.probabilities.ResizeUninitialized(1, scores);
    s_.gradients.ResizeUninitialized(1, scores);
    s_.wave.clear();
    size_t at = 0;
    for (const ScoreBlock& b : wave) {
      const MatrixView<float> p(s_.probabilities.data() + at, b.rows, b.keys());
      const MatrixView<float> dp(s_.gradients.data() + at, b.rows, b.keys());
      s_.wave.push_back({b.first + 1, p, p, dp});
      at += ScoreSize(b);
    }
  }

  void QueueScores(std::span<const ScoreBlock> wave) {
    for (size_t i = 0; i < wave.size(); ++i) {
      const ScoreBlock& b = wave[i];
      QueueScores(scores_, GemmRole::kFprop, b, QueriesOf(in_.queries, b),
                  in_.keys, s_.keys, s_.wave[i].p);
    }
  }

  void QueueProbabilityGradients(std::span<const ScoreBlock> wave,
                                 const HeadColumns<const float>& dout) {
    for (size_t i = 0; i < wave.size(); ++i) {
      const ScoreBlock& b = wave[i];
      QueueScores(values_, GemmRole::kDgrad, b, QueriesOf(dout, b), in_.values,
                  s_.values, s_.wave[i].dp);
    }
  }

  /// c = left right^T, which has the shape of the scores.
  void QueueScores(const AttentionSite& site, GemmRole role,
                   const ScoreBlock& b, MatrixView<const float> left,
                   const HeadColumns<const float>& right,
                   const std::vector<kernels::PackedOperand>& packed,
                   MatrixView<float> c) {
    if (packs_) {
      gemms_.AddInner({.a = {left}, .c = c, .packed_b = &packed[b.number]});
      return;
    }
    gemms_.AddInner(
        {.a = Left(site, role, b, left),
         .b = Right(site, role, b, KeysOf(right, b), Contraction::kColumns),
         .c = c});
  }

  /// Makes the probabilities as P V reads them, if that product quantises them.
  void ReadProbabilities(std::span<const ScoreBlock> wave) {
    const auto* quantization = values_.precision.fprop.left_operand();
    if (quantization == nullptr) return;
    s_.read.CopyFrom(s_.probabilities);
    std::vector<kernels::TensorToQuantize> tensors;
    for (size_t i = 0; i < wave.size(); ++i) {
      const MatrixView<float> p = s_.wave[i].p;
      const MatrixView<float> read(
          s_.read.data() + (p.data() - s_.probabilities.data()), p.rows(),
          p.cols());
      tensors.push_back(
          {read, quantization,
           StateFor(values_, GemmRole::kFprop, OperandSide::kLeft, wave[i])
               .Of(0)});
      s_.wave[i].read = read;
    }
    kernels::QuantizeTensors(tensors, executor_);
  }

  /// Queues dQ. Queues dK and dV as one product each, but only if the product
  /// has a quantised operand.
  void QueueGradients(std::span<const ScoreBlock> wave,
                      const HeadColumns<const float>& dout,
                      const AttentionGradients& to) {
    for (size_t i = 0; i < wave.size(); ++i) {
      const ScoreBlock& b = wave[i];
      const kernels::CausalBlock& scores = s_.wave[i];
      gemms_.AddInner({.a = Left(scores_, GemmRole::kDgrad, b, scores.dp),
                       .b = Right(scores_, GemmRole::kDgrad, b,
                                  KeysOf(in_.keys, b), Contraction::kRows),
                       .c = QueriesOf(to.queries, b),
                       .rounding = in_.rounding});
      if (values_.precision.wgrad.quantized()) {
        gemms_.AddInner({.a = Right(values_, GemmRole::kWgrad, b, scores.p,
                                    Contraction::kRows),
                         .b = Left(values_, GemmRole::kWgrad, b,
                                   QueriesOf(dout, b), Contraction::kRows),
                         .c = KeysOf(to.values, b),
                         .rounding = in_.rounding});
      }
      if (scores_.precision.wgrad.quantized()) {
        gemms_.AddInner(
            {.a = Left(scores_, GemmRole::kWgrad, b, scores.dp,
                       Contraction::kRows),
             .b = Right(scores_, GemmRole::kWgrad, b, QueriesOf(in_.queries, b),
                        Contraction::kRows),
             .c = KeysOf(to.keys, b),
             .rounding = in_.rounding});
      }
    }
  }

  /// Computes dK and dV, unless they are quantised, by blocks of queries. Each
  /// block is added to the sum of the blocks before it.
  void RunChains(std::span<const ScoreBlock> wave,
                 const HeadColumns<const float>& dout,
                 const AttentionGradients& to) {
    size_t end = 0;
    for (const ScoreBlock& b : wave) end = std::max(end, b.keys());
    for (size_t from = wave.front().first; from < end; from += kQueryBlock) {
      for (size_t i = 0; i < wave.size(); ++i) {
        if (from < wave[i].first || from >= wave[i].keys()) continue;
        if (!values_.precision.wgrad.quantized()) {
          QueueLink(wave[i], from, s_.wave[i].p, dout, to.values);
        }
        if (!scores_.precision.wgrad.quantized()) {
          QueueLink(wave[i], from, s_.wave[i].dp, in_.queries, to.keys);
        }
      }
      gemms_.Run();
    }
  }

  /// to += left^T right over one block of queries. The sum of a key that is
  /// seen for the first time starts at +0.
  void QueueLink(const ScoreBlock& b, size_t from, MatrixView<const float> left,
                 const HeadColumns<const float>& right,
                 const HeadColumns<float>& to) {
    const size_t rows = std::min(kQueryBlock, b.keys() - from);
    const MatrixView<const float> queries = left.Rows(from - b.first, rows);
    const auto add = [&](size_t key, size_t count,
                         MatrixView<const float> addend) {
      gemms_.AddInner(
          {.a = {queries.Cols(key, count), Contraction::kRows},
           .b = {right.Of(b.head, b.begin + from, rows), Contraction::kRows},
           .c = to.Of(b.head, b.begin + key, count),
           .addend = addend});
    };
    if (from > 0) add(0, from, to.Of(b.head, b.begin, from));
    add(from, rows, s_.zeros.view().Rows(0, rows).Cols(0, to.width));
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
  const bool packs_;  // right operands in panels, which only the host reads
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
