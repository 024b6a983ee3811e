#include "isoloss/probes/row_places.h"

#include "isoloss/base/error.h"

namespace isoloss::probes {

std::vector<RowRun> RunsOf(const model::TensorRows& rows, size_t row_count) {
  const bool of_tokens = rows.begins.empty();
  const size_t groups = of_tokens ? 1 : rows.begins.size() - 1;
  const bool whole_groups = rows.segment_ends.empty();
  const size_t segments =
      whole_groups || groups == 0 ? 1 : rows.segment_ends.size() / groups;
  ISOLOSS_ASSERT(rows.segment_rows.empty() ||
                 rows.segment_rows.size() == groups * segments);
  std::vector<RowRun> runs;
  size_t next = 0;
  for (size_t g = 0; g < groups; ++g) {
    const size_t begin = of_tokens ? 0 : rows.begins[g];
    const size_t end = of_tokens ? row_count : rows.begins[g + 1];
    ISOLOSS_ASSERT(begin == next);
    for (size_t s = 0; s < segments; ++s) {
      const size_t segment_end =
          whole_groups ? end : begin + rows.segment_ends[g * segments + s];
      ISOLOSS_ASSERT(segment_end >= next && segment_end <= end);
      const RowPlace first = of_tokens
                                 ? RowPlace{.position = rows.first_row + next}
                                 : RowPlace{.group = rows.first_group + g,
                                            .segment = rows.first_segment + s};
      const size_t used = rows.segment_rows.empty()
                              ? segment_end
                              : next + rows.segment_rows[g * segments + s];
      ISOLOSS_ASSERT(used <= segment_end);
      if (used > next) runs.push_back({next, used, first, g, s});
      next = segment_end;
    }
    ISOLOSS_ASSERT(next == end);
  }
  ISOLOSS_ASSERT(next == row_count);
  return runs;
}

}  // namespace isoloss::probes
