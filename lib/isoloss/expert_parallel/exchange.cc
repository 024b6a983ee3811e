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
  kernels::GatherCombineBackward(rows, plan.row_of_slot(), weights, dout,
                                 rounding, drows, dweights, team);
}

}  // namespace isoloss::expert_parallel
