#include "qualification/engine.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "isoloss/formats/format.h"

namespace isoloss::qualification {
namespace {

using formats::kMxBlockSize;
using kernels::Contraction;
using kernels::GemmProblem;
using kernels::Operand;
using model::GemmTask;

/// A task with finished operands.
struct Prepared {
  const GemmTask* task;
  std::vector<size_t> segment_ends;
  Matrix<float> a;  // operand rows
  Matrix<float> b;
};

class Engine {
 public:
  explicit Engine(EngineEdits edits) : edits_(std::move(edits)) {}

  void Run(std::span<const GemmTask> tasks, Executor& executor) const {
    std::vector<Prepared> prepared;
    std::vector<GemmProblem> problems;
    for (const GemmTask& task : tasks) {
      // An expert without tokens has nothing to quantise.
      if (Touches(task) && task.problem.a.depth() > 0 &&
          !task.problem.c.empty()) {
        prepared.push_back({&task, SegmentEnds(task.problem), {}, {}});
      } else {
        problems.push_back(task.problem);
      }
    }
    executor.ParallelFor(prepared.size() * 2, [&](size_t i) {
      Prepared& p = prepared[i / 2];
      const Side side = i % 2 == 0 ? Side::kLeft : Side::kRight;
      (side == Side::kLeft ? p.a : p.b) =
          Finished({*p.task, side, tasks}, p.segment_ends);
    });
    if (edits_.product) {
      executor.ParallelFor(prepared.size(),
                           [&](size_t i) { ComputeOtherwise(prepared[i]); });
    } else {
      for (const Prepared& p : prepared) problems.push_back(Plain(p));
    }
    kernels::GemmBatch(problems, executor);
    if (!edits_.result) return;
    for (const Prepared& p : prepared) edits_.result(*p.task);
  }

 private:
  bool Touches(const GemmTask& task) const {
    return !edits_.touches || edits_.touches(task);
  }

  static std::vector<size_t> SegmentEnds(const GemmProblem& problem) {
    if (problem.segment_ends.empty()) return {problem.a.depth()};
    return {problem.segment_ends.begin(), problem.segment_ends.end()};
  }

  Matrix<float> Finished(const Place& place,
                         std::span<const size_t> segment_ends) const {
    Matrix<float> rows = RowsOf(place.operand());
    if (place.operand().quantization == nullptr) return rows;
    const std::vector<Block> blocks = BlocksOf(segment_ends);
    if (edits_.before_quantising) edits_.before_quantising(place, rows);
    if (edits_.scale || edits_.scales || edits_.elements) {
      QuantizeOtherwise(place, blocks, rows);
    } else {
      QuantizeRows(place.spec(), blocks, rows);
    }
    if (edits_.after_quantising) edits_.after_quantising(place, rows);
    return rows;
  }

  void QuantizeOtherwise(const Place& place, std::span<const Block> blocks,
                         Matrix<float>& rows) const {
    Matrix<uint8_t> scales(rows.rows(), blocks.size());
    for (size_t i = 0; i < rows.rows(); ++i) {
      for (size_t n = 0; n < blocks.size(); ++n) {
        const auto block = In(rows, i, blocks[n]);
        scales(i, n) = edits_.scale ? edits_.scale(place, block)
                                    : formats::MxScale(block, place.spec());
      }
    }
    if (edits_.scales) edits_.scales(place, blocks, rows, scales);
    for (size_t i = 0; i < rows.rows(); ++i) {
      for (size_t n = 0; n < blocks.size(); ++n) {
        const auto block = In(rows, i, blocks[n]);
        if (edits_.elements) {
          edits_.elements(place, scales(i, n), block, block);
        } else {
          QuantizeUnderScale(*place.spec().element, scales(i, n), block, block);
        }
      }
    }
  }

  static std::span<float> In(Matrix<float>& rows, size_t row,
                             const Block& block) {
    return {rows.Row(row) + block.begin, block.end - block.begin};
  }

  static GemmProblem Plain(const Prepared& prepared) {
    GemmProblem problem = prepared.task->problem;
    problem.a = {prepared.a.view(), Contraction::kColumns, nullptr};
    problem.b = {prepared.b.view(), Contraction::kColumns, nullptr};
    problem.segment_ends = prepared.segment_ends;
    return problem;
  }

  void ComputeOtherwise(const Prepared& prepared) const {
    const GemmProblem& problem = prepared.task->problem;
    Matrix<float> sums(problem.c.rows(), problem.c.cols());
    edits_.product({*prepared.task, prepared.a.view(), prepared.b.view(),
                    prepared.segment_ends, sums.view()});
    ensembles::StoreSums(sums.view(), problem);
  }

  EngineEdits edits_;
};

/// RoundToFormat of every element format of MX blocks.
const CastTable& SaturatingCast(const formats::Format& element) {
  static const std::map<const formats::Format*, CastTable> tables = [] {
    std::map<const formats::Format*, CastTable> all;
    for (const formats::Format* format : formats::AllFormats()) {
      if (!format->is_small_float()) continue;
      all.emplace(format, CastTable([format](float value) {
                    return formats::RoundToFormat(*format, value,
                                                  formats::Overflow::kSaturate);
                  }));
    }
    return all;
  }();
  return tables.at(&element);
}

}  // namespace

std::vector<Block> BlocksOf(std::span<const size_t> segment_ends) {
  std::vector<Block> blocks;
  size_t begin = 0;
  for (const size_t end : segment_ends) {
    for (; begin < end; begin = blocks.back().end) {
      blocks.push_back({begin, std::min(begin + kMxBlockSize, end)});
    }
  }
  return blocks;
}

bool IsQuantized(const GemmTask& task) {
  return task.problem.a.quantization != nullptr ||
         task.problem.b.quantization != nullptr;
}

bool AtSite(const GemmTask& task, std::string_view part) {
  return task.site.find(part) != std::string_view::npos;
}

Matrix<float> RowsOf(const Operand& operand) {
  Matrix<float> rows;
  rows.ResizeUninitialized(operand.extent(), operand.depth());
  for (size_t i = 0; i < rows.rows(); ++i) {
    for (size_t k = 0; k < rows.cols(); ++k) rows(i, k) = operand.At(i, k);
  }
  return rows;
}

void QuantizeRows(const formats::Quantization& spec,
                  std::span<const Block> blocks, Matrix<float>& rows) {
  for (size_t i = 0; i < rows.rows(); ++i) {
    for (const Block& block : blocks) {
      const std::span<float> values(rows.Row(i) + block.begin,
                                    block.end - block.begin);
      if (spec.non_finite == formats::NonFinitePolicy::kBlockNan) {
        QuantizeUnderScale(*spec.element, formats::MxScale(values, spec),
                           values, values);
      } else {
        formats::QuantizeDequantizeBlock(values, spec, values);
      }
    }
  }
}

CastTable::CastTable(std::function<float(float)> cast)
    : cast_(std::move(cast)), values_(size_t{1} << 16) {
  for (uint32_t bits = 0; bits < values_.size(); ++bits) {
    values_[bits] = cast_(std::bit_cast<float>(bits << 16));
  }
}

void QuantizeUnderScale(const formats::Format& element, uint8_t scale,
                        std::span<const float> in, std::span<float> out) {
  const CastTable& cast = SaturatingCast(element);
  const float factor = formats::DecodeE8m0(scale);
  const float reciprocal = formats::E8m0Reciprocal(scale);
  for (size_t i = 0; i < in.size(); ++i) {
    out[i] = cast(in[i] * reciprocal) * factor;
  }
}

model::GemmEngine MakeEngine(EngineEdits edits) {
  return [engine = std::make_shared<const Engine>(std::move(edits))](
             std::span<const GemmTask> tasks, Executor& executor) {
    engine->Run(tasks, executor);
  };
}

}  // namespace isoloss::qualification
