#include "isoloss/kernels/gemm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/kernels/gemm_scalar.h"

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

void GemmOnTarget(const GemmProblem& problem) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  GemmScalar(problem);
#else
  static thread_local GemmWorker worker;
  worker.Run(problem);
#endif
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace isoloss::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace isoloss::kernels {
namespace {

HWY_EXPORT(GemmOnTarget);

/// Pieces begin at multiples of this many rows or columns: whole vectors.
constexpr size_t kPieceGranule = 32;
/// Below this many multiply-adds a product is not worth cutting.
constexpr double kMinPieceWork = 1 << 22;

double Work(const GemmProblem& problem) {
  return static_cast<double>(problem.c.rows()) *
         static_cast<double>(problem.c.cols()) *
         static_cast<double>(problem.a.depth());
}

Operand Extent(const Operand& operand, size_t first, size_t count) {
  Operand part = operand;
  part.values = operand.contraction == Contraction::kColumns
                    ? operand.values.Rows(first, count)
                    : operand.values.Cols(first, count);
  return part;
}

/// Cuts the longer side of c into about `pieces` parts: each part packs its own
/// copy of the operand along the other side, the shorter one.
void AppendPieces(const GemmProblem& problem, size_t pieces,
                  std::vector<GemmProblem>* out) {
  const bool by_rows = problem.c.rows() >= problem.c.cols();
  const size_t extent = by_rows ? problem.c.rows() : problem.c.cols();
  const size_t granules = (extent + kPieceGranule - 1) / kPieceGranule;
  pieces = std::clamp<size_t>(pieces, 1, std::max<size_t>(granules, 1));
  size_t first = 0;
  for (size_t piece = 1; piece <= pieces; ++piece) {
    const size_t end =
        std::min(granules * piece / pieces * kPieceGranule, extent);
    GemmProblem part = problem;
    if (by_rows) {
      part.a = Extent(problem.a, first, end - first);
      part.c = problem.c.Rows(first, end - first);
    } else {
      part.b = Extent(problem.b, first, end - first);
      part.c = problem.c.Cols(first, end - first);
    }
    out->push_back(part);
    first = end;
  }
}

/// One product is cut into a piece per thread; of several, each one into pieces
/// of about half a thread's share of the work.
size_t PiecesOf(const GemmProblem& problem, size_t problems, double total_work,
                int threads) {
  const double shares = problems == 1 ? 1.0 : 2.0;
  const double piece = std::max(total_work / (shares * threads), kMinPieceWork);
  return static_cast<size_t>(std::ceil(Work(problem) / piece));
}

}  // namespace

void Gemm(const GemmProblem& problem) {
  CheckGemmProblem(problem);
  HWY_DYNAMIC_DISPATCH(GemmOnTarget)(problem);
}

void GemmBatch(std::span<const GemmProblem> problems, ThreadTeam& team) {
  if (team.size() == 1) {
    for (const GemmProblem& problem : problems) Gemm(problem);
    return;
  }
  double total_work = 0.0;
  for (const GemmProblem& problem : problems) {
    CheckGemmProblem(problem);
    total_work += Work(problem);
  }
  static thread_local std::vector<GemmProblem> pieces;
  pieces.clear();
  for (const GemmProblem& problem : problems) {
    AppendPieces(problem,
                 PiecesOf(problem, problems.size(), total_work, team.size()),
                 &pieces);
  }
  // The loop runs on other threads, where the name `pieces` is another vector.
  const GemmProblem* const first = pieces.data();
  team.ParallelFor(pieces.size(), [first](size_t i) { Gemm(first[i]); });
}

}  // namespace isoloss::kernels

#endif  // HWY_ONCE
