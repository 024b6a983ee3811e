#include "qualification/exchange_proxy.h"

#include <algorithm>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::qualification {

/// Rows are ordered by (expert, dispatch unit, token, slot); units are equal
/// shares of the tokens.
RowMap ExchangeProxy::MapRows() const {
  const size_t tokens = expert_ids_.rows();
  const size_t slots = expert_ids_.cols();
  const std::span<const size_t> begins = expert_begins();
  const std::span<const int64_t> counts = tokens_per_expert();
  const size_t experts = begins.size() - 1;
  int64_t announced = 0;
  for (const int64_t count : counts) announced += count;
  if (experts != counts.size() ||
      announced != static_cast<int64_t>(tokens * slots)) {
    ThrowError(ErrorKind::kConfig,
               "mutants: this process has {} of {} experts and {} of {} "
               "assignments, but a mutant of the exchange must see all of "
               "them. Run it in one process.",
               experts, counts.size(), tokens * slots, announced);
  }
  const std::span<const size_t> ends = unit_ends();
  const size_t units = ends.empty() ? 1 : ends.size() / experts;
  std::vector<size_t> next(experts * units);
  for (size_t e = 0; e < experts; ++e) {
    for (size_t u = 0; u < units; ++u) {
      next[e * units + u] = begins[e] + (u == 0 ? 0 : ends[e * units + u - 1]);
    }
  }
  Matrix<size_t> rows(tokens, slots);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t k = 0; k < slots; ++k) {
      const auto expert = static_cast<size_t>(expert_ids_(t, k));
      rows(t, k) = next[expert * units + t * units / tokens]++;
    }
  }
  return RowMap(std::move(rows));
}

}  // namespace isoloss::qualification
