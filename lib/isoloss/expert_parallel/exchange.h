// Dispatch and combine of one rank (the `flat` exchange), with their adjoints.
//
// T = tokens, K = slots per token, R = T * K rows in the plan's order, D =
// width of a row. Bits depend on the arguments only, never on the team.
#pragma once

#include "isoloss/base/matrix.h"
#include "isoloss/base/threads.h"
#include "isoloss/expert_parallel/routing_plan.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::expert_parallel {

/// rows[r] = source[token of r].
/// Shapes   source [T, D]; rows [R, D].
void Dispatch(const RoutingPlan& plan, MatrixView<const float> source,
              MatrixView<float> rows, ThreadTeam& team);

/// Adjoint of Dispatch: dsource[t] = sum over slots k, ascending, of
/// drows[row of (t, k)], then + addend[t], in FP32 with one rounding.
/// Shapes   drows [R, D]; addend, dsource [T, D].
void DispatchBackward(const RoutingPlan& plan, MatrixView<const float> drows,
                      MatrixView<const float> addend,
                      kernels::Rounding rounding, MatrixView<float> dsource,
                      ThreadTeam& team);

/// out[t] = sum over slots k, ascending, of weights[t, k] * rows[row of (t, k)]
/// by FP32 FMA from +0, with one rounding.
/// Shapes   rows [R, D]; weights [T, K]; out [T, D].
/// Source   docs/expert-parallel.md, section 3.2, `flat`.
void Combine(const RoutingPlan& plan, MatrixView<const float> rows,
             MatrixView<const float> weights, kernels::Rounding rounding,
             MatrixView<float> out, ThreadTeam& team);

/// Adjoint of Combine: drows[row of (t, k)] = weights[t, k] * dout[t], rounded;
/// dweights[t, k] = <dout[t], rows[row of (t, k)]> (kernels::RowDot, FP32).
/// Shapes   rows, drows [R, D]; dout [T, D]; weights, dweights [T, K]. `drows`
///          may be `rows`.
void CombineBackward(const RoutingPlan& plan, MatrixView<const float> rows,
                     MatrixView<const float> weights,
                     MatrixView<const float> dout, kernels::Rounding rounding,
                     MatrixView<float> drows, MatrixView<float> dweights,
                     ThreadTeam& team);

}  // namespace isoloss::expert_parallel
