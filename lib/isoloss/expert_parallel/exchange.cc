#include "isoloss/expert_parallel/exchange.h"

#include <cstring>

#include "isoloss/base/error.h"
#include "isoloss/kernels/row_tasks.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::expert_parallel {
void Dispatch(const RoutingPlan& plan, MatrixView<const float> source,
              MatrixView<float> rows, ThreadTeam& team) {
  ISOLOSS_ASSERT(source.rows() == plan.tokens() && rows.rows() == plan.rows() &&
                 rows.cols() == source.cols());
  kernels::ForEachRow(plan.rows(), team, [&](size_t row) {
    const auto token = static_cast<size_t>(plan.token_of_row()(row, 0));
    std::memcpy(rows.Row(row), source.Row(token),
                source.cols() * sizeof(float));
  });
}

void DispatchBackward(const RoutingPlan& plan, MatrixView<const float> drows,
                      MatrixView<const float> addend,
                      kernels::Rounding rounding, MatrixView<float> dsource,
                      ThreadTeam& team) {
  const MatrixView<const float> unit_weights;
  kernels::GatherCombine(drows, plan.row_of_slot(), unit_weights, addend,
                         rounding, dsource, team);
}

void Combine(const RoutingPlan& plan, MatrixView<const float> rows,
             MatrixView<const float> weights, kernels::Rounding rounding,
             MatrixView<float> out, ThreadTeam& team) {
  const MatrixView<const float> no_addend;
  kernels::GatherCombine(rows, plan.row_of_slot(), weights, no_addend, rounding,
                         out, team);
}

void CombineBackward(const RoutingPlan& plan, MatrixView<const float> rows,
                     MatrixView<const float> weights,
                     MatrixView<const float> dout, kernels::Rounding rounding,
                     MatrixView<float> drows, MatrixView<float> dweights,
                     ThreadTeam& team) {
  const size_t width = dout.cols();
  Matrix<float> weight_of_row(plan.rows(), 1);
  kernels::ForEachRow(plan.tokens(), team, [&](size_t token) {
    for (size_t slot = 0; slot < plan.slots(); ++slot) {
      const auto row = static_cast<size_t>(plan.row_of_slot()(token, slot));
      weight_of_row(row, 0) = weights(token, slot);
      dweights(token, slot) =
          kernels::RowDot({dout.Row(token), width}, {rows.Row(row), width});
    }
  });
  // A gather with one slot per row: row r takes its token's dout, weighted.
  const MatrixView<const float> no_addend;
  kernels::GatherCombine(dout, plan.token_of_row(), weight_of_row.cview(),
                         no_addend, rounding, drows, team);
}

}  // namespace isoloss::expert_parallel
