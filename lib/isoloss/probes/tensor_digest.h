// Computes the content digest of a tensor of the whole batch from the rows
// that processes hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/model/tap.h"

namespace isoloss::probes {

/// Returns the sum mod 2^64 over rows of a hash of the row's bytes (XXH3-64)
/// and of its place (row_places.h). Parts of a tensor add up in any order, so
/// the digest does not depend on who holds which rows. -0 is not +0. Every NaN
/// counts as the same one, as no kernel defines payloads. Rows that do not
/// count give 0.
/// Shapes   values: the rows that `rows` describes.
uint64_t DigestRows(MatrixView<const float> values,
                    const model::TensorRows& rows, Executor& executor);
uint64_t DigestRows(MatrixView<const int32_t> values,
                    const model::TensorRows& rows, Executor& executor);

/// Returns the digest from the sum over all processes. It is never 0, which
/// stands for no digest.
uint64_t FinishDigest(uint64_t sum);

}  // namespace isoloss::probes
