// The host's side of the operands of products: each is read in place, or is
// prepared once for all products of a batch that share it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/device/executor.h"
#include "isoloss/device/fragments.h"
#include "isoloss/device/gemm_tiles.h"
#include "isoloss/device/prepare_forms.h"
#include "isoloss/device/quads.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/operand.h"
#include "isoloss/kernels/prepared_operand.h"
#include "isoloss/kernels/same_operand.h"
#include "isoloss/kernels/scalar/gemm.h"

namespace isoloss::device {

inline bool IsReadInPlace(const kernels::Operand& operand) {
  return operand.quantization == nullptr && operand.before == nullptr &&
         operand.rounding == kernels::Rounding::kFp32;
}

/// Returns stored values with rows as operand rows.
inline StepRows<const float> StoredRows(const kernels::Operand& operand) {
  const MatrixView<const float>& values = operand.values;
  if (operand.contraction == kernels::Contraction::kColumns) {
    return {values.data(), values.stride(), 1};
  }
  return {values.data(), 1, values.stride()};
}

inline Side SideInPlace(const kernels::Operand& operand) {
  Side side;
  side.values = StoredRows(operand);
  side.readable_rows = operand.extent();
  side.has_quads = operand.contraction == kernels::Contraction::kRows &&
                   operand.extent() % kQuad == 0 && AreQuads(operand.values);
  return side;
}

inline formats::TensorState StateOf(const kernels::OperandState* state,
                                    size_t tensor) {
  return state == nullptr ? kernels::OperandState().Of(tensor)
                          : state->Of(tensor);
}

/// Describes the contraction axis of a product.
struct Axis {
  kernels::Pieces pieces;
  bool is_packed = false;  ///< tensor cores read its operands
  std::vector<Segment> segments;

  /// Returns the number of steps of a row in memory, and that of a piece.
  size_t depth() const { return segments.empty() ? 0 : segments.back().end; }
  size_t piece_steps() const {
    return is_packed ? RoundUp(pieces.length, kPackedSteps) : pieces.length;
  }
};

inline Axis AxisOf(const kernels::GemmProblem& problem) {
  size_t whole = 0;
  Axis axis;
  axis.pieces = kernels::PiecesOf(problem.a.quantization,
                                  problem.b.quantization, problem.accumulation,
                                  kernels::SegmentEnds(problem, &whole));
  const kernels::Accumulator* const accumulator =
      problem.accumulation.accumulator;
  axis.is_packed = accumulator != nullptr && AddsFragments(*accumulator);
  uint32_t piece = 0;
  axis.pieces.ForEach([&](size_t segment, size_t begin, size_t end) {
    if (segment == axis.segments.size()) {
      const auto place = static_cast<uint32_t>(axis.depth());
      axis.segments.push_back({place, place, piece});
    }
    const size_t steps =
        axis.is_packed ? RoundUp(end - begin, kPackedSteps) : end - begin;
    axis.segments.back().end += static_cast<uint32_t>(steps);
    ++piece;
  });
  return axis;
}

template <typename Target>
class Operands {
 public:
  Operands(Call<Target>& call, Rooms<Target>& rooms)
      : rooms_(rooms), before_(call, rooms), preparation_(call, rooms) {}

  /// Returns an operand as products read it after Run. The arguments must live
  /// until then. An accumulator, or null, reads them.
  Side SideOf(const kernels::Operand& operand, const Axis& axis,
              const kernels::Accumulator* accumulator) {
    // Kernels count the floats of a tile in 32 bits.
    ISOLOSS_ASSERT(std::max(operand.values.stride(), operand.extent()) <
                   kLongestStride);
    if (accumulator == nullptr && IsReadInPlace(operand))
      return SideInPlace(operand);
    auto& known = prepared_[operand.values.data()];
    for (const Prepared& other : known) {
      if (kernels::SameOperand(*other.operand, operand) &&
          kernels::SamePieces(other.axis->pieces, axis.pieces) &&
          other.accumulator == accumulator) {
        return other.side;
      }
    }
    const Side side = RoomFor(operand, axis, accumulator);
    known.push_back({&operand, &axis, accumulator, side});
    for (const auto& cut : kernels::CutsOf(operand, axis.pieces)) {
      Add(operand, axis, cut, accumulator, side);
    }
    return side;
  }

  void Run() {
    before_.Run();
    preparation_.Run();
  }

 private:
  struct Prepared {
    const kernels::Operand* operand;
    const Axis* axis;
    const kernels::Accumulator* accumulator;
    Side side;
  };

  /// Chains read rows that are neighbours, accumulators steps, and tensor cores
  /// packed steps.
  Side RoomFor(const kernels::Operand& operand, const Axis& axis,
               const kernels::Accumulator* accumulator) {
    const size_t depth = axis.depth();
    const size_t rows = RoundUp(operand.extent(), kQuad);
    Side side;
    side.readable_rows = rows;
    side.has_quads = true;
    if (axis.is_packed) {
      side.readable_rows = operand.extent();
      side.packed = {rooms_.template Take<uint16_t>(rows * depth), depth, 1};
    } else if (accumulator == nullptr) {
      side.values = {rooms_.template Take<float>(rows * depth), 1, rows};
    } else {
      side.values = {rooms_.template Take<float>(rows * depth), depth, 1};
      if (accumulator->exponents != kernels::FactorExponents::kOfValues) {
        side.exponents = {rooms_.template Take<int16_t>(rows * depth), depth,
                          1};
      }
    }
    const formats::Quantization* quantization = operand.quantization;
    if (quantization != nullptr &&
        (quantization->scales_sums() || quantization->scales_tensor())) {
      side.factors = {rooms_.template Take<float>(rows * axis.pieces.count()),
                      1, rows};
    }
    return side;
  }

  /// Adds the task of a tensor, and that of what comes before it.
  void Add(const kernels::Operand& operand, const Axis& axis,
           const kernels::TensorCut& cut,
           const kernels::Accumulator* accumulator, const Side& side) {
    TensorTask task;
    if (accumulator != nullptr) task.exponent_kind = accumulator->exponents;
    task.from = StoredRows(operand);
    task.from.data = task.from.At(cut.rows.begin, cut.steps.begin);
    task.rounding = operand.rounding;
    if (operand.before != nullptr) {
      task.from = RowsBefore(operand, cut);
      task.rounding = kernels::Rounding::kFp32;
    }
    task.stored_steps = cut.steps.size();
    task.rows = cut.rows.size();
    task.steps = cut.prepared_steps.size();
    const Segment& segment = axis.segments[cut.number % axis.segments.size()];
    task.to = Part(side.values, cut.rows.begin, segment.begin);
    task.packed = Part(side.packed, cut.rows.begin, segment.begin);
    task.piece_steps = axis.pieces.length;
    if (side.exponents.data != nullptr) {
      task.exponents = Part(side.exponents, cut.rows.begin, segment.begin);
    }
    if (operand.quantization != nullptr) {
      SetQuantization(*operand.quantization, StateOf(operand.state, cut.number),
                      task);
    }
    if (side.factors.data != nullptr && task.steps > 0) {
      task.factors = Part(side.factors, cut.rows.begin, segment.first_piece);
      task.piece_count =
          task.piece_steps == 0 ? 1 : CeilOf(task.steps, task.piece_steps);
    }
    preparation_.Add(task);
  }

  /// Returns the rows of a tensor after the quantisation that came before,
  /// along stored columns.
  StepRows<const float> RowsBefore(const kernels::Operand& operand,
                                   const kernels::TensorCut& cut) {
    const bool stored_rows =
        operand.contraction == kernels::Contraction::kColumns;
    const kernels::Range& rows = stored_rows ? cut.rows : cut.steps;
    TensorTask task;
    task.from = {operand.values.Row(rows.begin), operand.values.stride(), 1};
    task.rounding = operand.rounding;
    task.rows = rows.size();
    task.stored_steps = operand.values.cols();
    task.steps = RoundUp(task.stored_steps,
                         formats::RunLength(operand.before->transform));
    task.to = {rooms_.template Take<float>(task.rows * task.steps), task.steps,
               1};
    task.dequantizes = true;
    SetQuantization(*operand.before, StateOf(operand.state_before, cut.number),
                    task);
    before_.Add(task);
    StepRows<const float> result = {task.to.data, task.steps, 1};
    if (!stored_rows) return {task.to.data, 1, task.steps};
    result.data = result.At(0, cut.steps.begin);
    return result;
  }

  /// Returns the part of a side from an element on, to be written.
  template <typename T>
  static StepRows<T> Part(const StepRows<const T>& whole, size_t row,
                          size_t step) {
    if (whole.data == nullptr) return {};
    return {const_cast<T*>(whole.At(row, step)), whole.row_stride,
            whole.step_stride};
  }

  Rooms<Target>& rooms_;
  Preparation<Target> before_;
  Preparation<Target> preparation_;
  std::map<const float*, std::vector<Prepared>> prepared_;
};

}  // namespace isoloss::device
