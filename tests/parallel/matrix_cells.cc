#include "matrix_cells.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <map>
#include <stdexcept>
#include <utility>

namespace isoloss::train {
namespace {

using testing::IsEmpty;

/// A run as its values, numbered through all factors.
using Values = std::array<size_t, 5>;
constexpr size_t kMostValues = 32;
using PairSet = std::bitset<kMostValues * kMostValues>;

class Numbering {
 public:
  Values Of(const Cell& cell, const Execution& how) {
    return {Number(cell.what->label), Number(cell.recipe),
            Number(fmt::format("V={}", how.ranks)),
            Number(fmt::format("{} n={}", how.transport, how.processes)),
            Number(fmt::format("W={}", how.workers))};
  }

 private:
  size_t Number(const std::string& value) {
    const size_t number =
        numbers_.emplace(value, numbers_.size()).first->second;
    if (number >= kMostValues) throw std::length_error(value);
    return number;
  }

  std::map<std::string, size_t> numbers_;
};

/// Calls `visit` with each of the run's pairs.
template <typename Visit>
void ForPairs(const Values& values, const Visit& visit) {
  for (size_t a = 0; a < values.size(); ++a) {
    for (size_t b = 0; b < a; ++b) {
      visit(values[a] * kMostValues + values[b]);
    }
  }
}

/// Roughly the seconds that a run takes, in some unit.
size_t CostOf(const Execution& how) {
  const size_t threads = how.processes * static_cast<size_t>(how.workers);
  return 2 + threads + how.ranks / (how.transport == "shuffled" ? 16 : 64);
}

struct Candidate {
  size_t cell;
  Execution how;
  Values values;
};

std::vector<Candidate> AllCandidates(const std::vector<Cell>& cells) {
  Numbering numbering;
  std::vector<Candidate> all;
  for (size_t c = 0; c < cells.size(); ++c) {
    for (const Execution& how : cells[c].executions) {
      all.push_back({c, how, numbering.Of(cells[c], how)});
    }
  }
  return all;
}

}  // namespace

std::vector<Cell> FullMatrix() {
  std::vector<Cell> cells;
  for (const Case& what : AllCases()) {
    for (const std::string& recipe : AllRecipes()) {
      Cell& cell = cells.emplace_back(Cell{&what, recipe, {}});
      for (const Execution& how : AllExecutions()) {
        if (what.shareable || how.processes == 1) {
          cell.executions.push_back(how);
        }
      }
    }
  }
  return cells;
}

std::vector<Cell> CoveringSubset() {
  std::vector<Cell> cells = FullMatrix();
  const std::vector<Candidate> all = AllCandidates(cells);
  PairSet missing;
  for (const Candidate& run : all) {
    ForPairs(run.values, [&](size_t pair) { missing.set(pair); });
  }
  for (Cell& cell : cells) cell.executions.clear();
  while (missing.any()) {
    const Candidate* best = nullptr;
    double most = 0;
    for (const Candidate& run : all) {
      size_t fresh = 0;
      ForPairs(run.values, [&](size_t pair) { fresh += missing[pair]; });
      const double worth =
          static_cast<double>(fresh) / static_cast<double>(CostOf(run.how));
      if (worth > most) {
        most = worth;
        best = &run;
      }
    }
    ForPairs(best->values, [&](size_t pair) { missing.reset(pair); });
    cells[best->cell].executions.push_back(best->how);
  }
  return cells;
}

void ExpectOneContent(std::span<const Execution> executions,
                      const std::function<Content(const Execution&)>& run) {
  // One rank needs no transport, and then its log has no exchange.
  std::map<std::pair<size_t, bool>, Content> of_ranks;
  for (const Execution& how : executions) {
    const Content content = run(how);
    const bool exchanges = content.contains("/exchange/step");
    const auto expected =
        of_ranks.try_emplace({how.ranks, exchanges}, content).first;
    EXPECT_THAT(Differing(content, expected->second), IsEmpty())
        << how.Label() << " against others of as many ranks";
    EXPECT_THAT(
        Differing(WithoutMesh(content), WithoutMesh(of_ranks.begin()->second)),
        IsEmpty())
        << how.Label();
  }
}

void ExpectOneContent(const Cell& cell) {
  std::vector<Execution> executions = {Execution{}};
  executions.insert(executions.end(), cell.executions.begin(),
                    cell.executions.end());
  ExpectOneContent(executions, [&](const Execution& how) {
    return ContentOf(RunOf(*cell.what, cell.recipe, how));
  });
}

}  // namespace isoloss::train
