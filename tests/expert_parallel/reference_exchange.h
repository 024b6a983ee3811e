// What an exchange does to numbers, without one: loops over tokens that follow
// the definitions of docs/distributed.md word by word. Exchanges are tested
// against it, so it shares no code with them but the definitions of payloads
// and dot products.
//
// T tokens with K slots each; row t * K + k belongs to slot k of token t. ids
// and weights are [T, K]. `rounding` is how an arm stores its activations.
#pragma once

#include <cstdint>

#include "isoloss/base/matrix.h"
#include "isoloss/expert_parallel/options.h"
#include "isoloss/expert_parallel/topology.h"
#include "isoloss/kernels/rounding.h"

namespace isoloss::expert_parallel::testing {

/// [T * K, D]: each row of x [T, D] as the experts of its slots see it.
Matrix<float> ReferenceDispatch(MatrixView<const float> x,
                                MatrixView<const int32_t> ids,
                                const ExchangeOptions& options,
                                kernels::Rounding rounding);

/// [T, D]. rows [T * K, D]: the experts' outputs; with kBeforeFc2 they carry
/// their weights already.
Matrix<float> ReferenceCombine(MatrixView<const float> rows,
                               MatrixView<const int32_t> ids,
                               MatrixView<const float> weights,
                               const Topology& topology,
                               const ExchangeOptions& options,
                               kernels::Rounding rounding);

struct CombineGradients {
  Matrix<float> drows;     ///< [T * K, D]
  Matrix<float> dweights;  ///< [T, K]; zeros with kBeforeFc2
};

/// The adjoint of ReferenceCombine at rows, for the output gradient dout
/// [T, D]. No sum is divided among ranks here, so the topology changes nothing.
CombineGradients ReferenceCombineBackward(MatrixView<const float> rows,
                                          MatrixView<const int32_t> ids,
                                          MatrixView<const float> weights,
                                          MatrixView<const float> dout,
                                          const Topology& topology,
                                          const ExchangeOptions& options,
                                          kernels::Rounding rounding);

/// [T, D]: the adjoint of ReferenceDispatch without its payload: the sum of
/// each token's rows, of drows [T * K, D]; `addend` [T, D], unless it is empty,
/// is added last, before the last rounding.
Matrix<float> ReferenceDispatchBackward(MatrixView<const float> drows,
                                        MatrixView<const int32_t> ids,
                                        const Topology& topology,
                                        const ExchangeOptions& options,
                                        MatrixView<const float> addend,
                                        kernels::Rounding rounding);

}  // namespace isoloss::expert_parallel::testing
