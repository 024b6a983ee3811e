#include "isoloss/kernels/gemm_schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

namespace isoloss::kernels {
namespace {

/// To pack one element of an operand takes as long as this number of
/// multiply-adds.
constexpr double kPackingCost = 24;
/// Below this many multiply-adds, some 20 microseconds, a batch stays whole.
constexpr double kMinSharedWork = 2 << 20;

double WorkOf(const GemmProblem& problem) {
  const auto rows = static_cast<double>(problem.c.rows());
  const auto columns = static_cast<double>(problem.c.cols());
  return (rows * columns + kPackingCost * (rows + columns)) *
         static_cast<double>(problem.a.depth());
}

double WorkOf(const GemmGroup& group) {
  double work = 0;
  for (const GemmProblem* problem : group.problems) work += WorkOf(*problem);
  return work;
}

bool SameOperand(const Operand& x, const Operand& y) {
  return x.values.data() == y.values.data() &&
         x.values.rows() == y.values.rows() &&
         x.values.cols() == y.values.cols() &&
         x.values.stride() == y.values.stride() &&
         x.contraction == y.contraction && x.rounding == y.rounding &&
         x.quantization == y.quantization;
}

/// MX blocks start anew with every segment.
bool SameSegments(const GemmProblem& x, const GemmProblem& y) {
  return std::equal(x.segment_ends.begin(), x.segment_ends.end(),
                    y.segment_ends.begin(), y.segment_ends.end());
}

bool SameLeft(const GemmProblem& x, const GemmProblem& y) {
  return SameOperand(x.a, y.a) && SameSegments(x, y);
}

/// Packed right sides are excluded: computing their products together saves
/// nothing.
bool SameRight(const GemmProblem& x, const GemmProblem& y) {
  return x.packed_b == nullptr && y.packed_b == nullptr &&
         SameOperand(x.b, y.b) && SameSegments(x, y);
}

/// Sorts by the address of an operand, and equal addresses by their place in
/// the batch.
template <typename Address>
void SortBy(const Address& address, std::vector<const GemmProblem*>& problems) {
  std::sort(problems.begin(), problems.end(),
            [&](const GemmProblem* x, const GemmProblem* y) {
              return std::less<>()(std::pair(address(*x), x),
                                   std::pair(address(*y), y));
            });
}

/// Calls visit with each longest run of neighbours that are the same.
template <typename Same, typename Visit>
void ForEachRun(std::span<const GemmProblem* const> problems, const Same& same,
                const Visit& visit) {
  for (size_t begin = 0; begin < problems.size();) {
    size_t end = begin + 1;
    while (end < problems.size() && same(*problems[begin], *problems[end])) {
      ++end;
    }
    visit(problems.subspan(begin, end - begin));
    begin = end;
  }
}

GemmGroup MakeGroup(GemmGroup::Common common,
                    std::span<const GemmProblem* const> problems,
                    const TileShape& tile) {
  GemmGroup group{common, problems, 0, 0};
  for (const GemmProblem* problem : problems) {
    const size_t rows = BalancedTiles(problem->c.rows(), tile.rows).count();
    const size_t columns =
        (problem->c.cols() + tile.columns - 1) / tile.columns;
    const bool first = problem == problems.front();
    if (first || common == GemmGroup::Common::kRight) group.row_tiles += rows;
    if (first || common == GemmGroup::Common::kLeft) {
      group.column_tiles += columns;
    }
  }
  return group;
}

}  // namespace

GemmPiece WholePiece(const GemmProblem* const& problem, const TileShape& tile) {
  const GemmGroup group =
      MakeGroup(GemmGroup::Common::kRight, {&problem, 1}, tile);
  return {group, 0, group.row_tiles, 0, group.column_tiles};
}

void GemmSchedule::FindGroups(std::span<const GemmProblem> problems,
                              const TileShape& tile) {
  sorted_.clear();
  singles_.clear();
  order_.clear();
  groups_.clear();
  order_.reserve(problems.size());  // groups point into it
  for (const GemmProblem& problem : problems) {
    if (!problem.c.empty()) sorted_.push_back(&problem);
  }
  const auto append = [&](GemmGroup::Common common,
                          std::span<const GemmProblem* const> run) {
    const auto at = order_.insert(order_.end(), run.begin(), run.end());
    groups_.push_back(MakeGroup(common, {at, order_.end()}, tile));
  };
  SortBy([](const GemmProblem& p) { return p.a.values.data(); }, sorted_);
  ForEachRun(sorted_, SameLeft, [&](std::span<const GemmProblem* const> run) {
    if (run.size() == 1) return singles_.push_back(run[0]);
    append(GemmGroup::Common::kLeft, run);
  });
  SortBy([](const GemmProblem& p) { return p.b.values.data(); }, singles_);
  ForEachRun(singles_, SameRight, [&](std::span<const GemmProblem* const> run) {
    append(GemmGroup::Common::kRight, run);
  });
  // In the order of the batch, operands that products of one expert read are
  // still near.
  std::sort(groups_.begin(), groups_.end(),
            [](const GemmGroup& x, const GemmGroup& y) {
              return std::less<>()(x.problems[0], y.problems[0]);
            });
}

/// Appends the part of a group in [begin, end) of its work, cut along the
/// longer side of c: each part packs its own copy of the shorter side.
void GemmSchedule::AppendPart(const GemmGroup& group, const TileShape& tile,
                              double begin, double end) {
  GemmPiece piece{group, 0, group.row_tiles, 0, group.column_tiles};
  const auto cut = [&](size_t tiles, size_t* first, size_t* last) {
    const auto count = static_cast<double>(tiles);
    *first = static_cast<size_t>(std::lround(begin * count));
    *last = static_cast<size_t>(std::lround(end * count));
  };
  if (group.row_tiles * tile.rows >= group.column_tiles * tile.columns) {
    cut(group.row_tiles, &piece.row_begin, &piece.row_end);
  } else {
    cut(group.column_tiles, &piece.column_begin, &piece.column_end);
  }
  if (piece.row_begin < piece.row_end &&
      piece.column_begin < piece.column_end) {
    pieces_.push_back(piece);
  }
}

void GemmSchedule::Divide(std::span<const GemmProblem> problems,
                          const TileShape& tile, size_t threads) {
  FindGroups(problems, tile);
  pieces_.clear();
  thread_ends_.clear();
  double total = 0;
  for (const GemmGroup& group : groups_) total += WorkOf(group);
  if (total < kMinSharedWork) threads = 1;

  const double share = total / static_cast<double>(threads);
  size_t next = 0;  // group
  double done = 0;  // work of the groups before it
  for (size_t thread = 0; thread < threads; ++thread) {
    const bool last = thread + 1 == threads;
    const double share_begin = share * static_cast<double>(thread);
    const double share_end = share * static_cast<double>(thread + 1);
    for (; next < groups_.size(); ++next) {
      const double work = WorkOf(groups_[next]);
      const auto fraction = [&](double at) {
        return std::clamp((at - done) / work, 0.0, 1.0);
      };
      const bool reaches_over = !last && done + work > share_end;
      AppendPart(groups_[next], tile, work > 0 ? fraction(share_begin) : 0.0,
                 reaches_over ? fraction(share_end) : 1.0);
      if (reaches_over) break;
      done += work;
    }
    thread_ends_.push_back(pieces_.size());
  }
}

}  // namespace isoloss::kernels
