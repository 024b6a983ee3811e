#include "isoloss/kernels/gemm.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "isoloss/kernels/fused_gemm.h"
#include "isoloss/kernels/gemm_pieces.h"
#include "isoloss/kernels/gemm_schedule.h"
#include "isoloss/kernels/prepare.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/scalar/gemm.h"

// Compiles this file once per target.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "isoloss/kernels/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "isoloss/kernels/gemm-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace isoloss::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

/// This target has no tiles, so that it computes whole products only.
TileShape TileShapeOnTarget() {
  constexpr auto kAny = std::numeric_limits<int32_t>::max();
  return {kAny, kAny};
}

void RunPieceOnTarget(const GemmPiece& piece) {
  const bool by_rows = piece.group.common == GemmGroup::Common::kRight;
  const size_t begin = by_rows ? piece.row_begin : piece.column_begin;
  const size_t end = by_rows ? piece.row_end : piece.column_end;
  for (size_t p = begin; p < end; ++p) GemmScalar(*piece.group.problems[p]);
}

size_t PanelWidthOnTarget() { return 1; }

void PackPanelOnTarget(const Operand& operand, size_t first, size_t /*count*/,
                       float* panel) {
  PackRowScalar(operand, first, panel);
}

#else

TileShape TileShapeOnTarget() { return {kTileRows, kTileColumns}; }

void RunPieceOnTarget(const GemmPiece& piece) {
  static thread_local GemmWorker worker;
  worker.Run(piece);
}

size_t PanelWidthOnTarget() { return kTileColumns; }

void PackPanelOnTarget(const Operand& operand, size_t first, size_t count,
                       float* panel) {
  const size_t depth = operand.depth();
  PackPanel(operand, first, count, {&depth, 1}, panel);
}

#endif
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(TileShapeOnTarget);
HWY_EXPORT(RunPieceOnTarget);
HWY_EXPORT(PanelWidthOnTarget);
HWY_EXPORT(PackPanelOnTarget);

/// Each thread that calls Gemm or GemmBatch keeps its own schedule.
GemmSchedule& ThisThreadsSchedule() {
  static thread_local GemmSchedule schedule;
  return schedule;
}

void RunPieces(std::span<const GemmPiece> pieces) {
  for (const GemmPiece& piece : pieces) {
    HWY_DYNAMIC_DISPATCH(RunPieceOnTarget)(piece);
  }
}

/// Computes one product on the calling thread.
void MultiplyPackable(const GemmProblem& problem) {
  if (problem.c.empty()) return;
  const GemmProblem* const only = &problem;
  HWY_DYNAMIC_DISPATCH(RunPieceOnTarget)
  (WholePiece(only, HWY_DYNAMIC_DISPATCH(TileShapeOnTarget)()));
}

void RunPackable(std::span<const GemmProblem> problems, Executor& executor) {
  GemmSchedule& schedule = ThisThreadsSchedule();
  schedule.Divide(problems, HWY_DYNAMIC_DISPATCH(TileShapeOnTarget)(),
                  static_cast<size_t>(executor.size()));
  executor.ParallelFor(schedule.threads(), [&schedule](size_t thread) {
    RunPieces(schedule.PiecesOf(thread));
  });
}

}  // namespace

void PackedOperand::Pack(const Operand& operand,
                         const formats::Quantization* left,
                         const Accumulation& accumulation) {
  extent_ = operand.extent();
  depth_ = operand.depth();
  quantization_ = operand.quantization;
  is_prepared_ = !operand.is_packable() ||
                 (left != nullptr && !left->is_mx()) ||
                 accumulation != Accumulation{};
  if (is_prepared_) {
    const Pieces pieces =
        PiecesOf(left, quantization_, accumulation, {&depth_, 1});
    Prepare(operand, pieces, accumulation.exponents(), prepared_);
    if (!HasFusedPanels(accumulation.accumulator)) return;
    ResizeFusedPanels(prepared_);
    for (size_t i = 0; i < prepared_.panel_values.rows(); ++i) {
      PackFusedPanel(i, prepared_);
    }
    return;
  }
  panel_width_ = HWY_DYNAMIC_DISPATCH(PanelWidthOnTarget)();
  const size_t panels = (extent_ + panel_width_ - 1) / panel_width_;
  panels_.ResizeUninitialized(panels, depth_ * panel_width_);
  for (size_t panel = 0; panel < panels; ++panel) {
    const size_t first = panel * panel_width_;
    HWY_DYNAMIC_DISPATCH(PackPanelOnTarget)
    (operand, first, std::min(panel_width_, extent_ - first),
     panels_.Row(panel));
  }
}

void Gemm(const GemmProblem& problem) {
  CheckGemmProblem(problem);
  if (problem.is_packable()) return MultiplyPackable(problem);
  Executor alone(1);
  GemmBatch({&problem, 1}, alone);
}

void GemmBatch(std::span<const GemmProblem> problems, Executor& executor) {
  for (const GemmProblem& problem : problems) CheckGemmProblem(problem);
  if (RanElsewhere(&GemmBatch, problems, executor)) return;
  if (std::ranges::all_of(problems, &GemmProblem::is_packable)) {
    RunPackable(problems, executor);
    return;
  }
  static thread_local PieceGemm pieces;
  RunPackable(pieces.Prepare(problems, executor), executor);
  pieces.Run(executor, MultiplyPackable);
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
