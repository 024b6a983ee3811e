// A device computes kernels::RowDigests by this form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "isoloss/device/executor.h"
#include "isoloss/device/form_table.h"
#include "isoloss/device/row_kernels.h"
#include "isoloss/kernels/row_digests.h"

namespace isoloss::device {

struct DigestRows {
  static constexpr size_t kThreads = kRowThreads;
  struct Shared {
    uint64_t lanes[kRowsOfBlock][kLanes];
  };

  Input x;
  uint64_t* digests;

  size_t blocks() const { return CeilOf(x.rows(), kRowsOfBlock); }
  template <typename Block>
  constexpr void operator()(Block& block) const {
    ReduceRows(
        block, BlockRowsOf(block.index(), x.rows(), kRowsOfBlock),
        [this](size_t row, size_t lane) {
          uint64_t sum = 0;
          for (size_t j = lane; j < x.cols(); j += kLanes) {
            sum += kernels::DigestOfElement(x(row, j), j);
          }
          return sum;
        },
        [](const uint64_t* lanes) {
          uint64_t sum = 0;
          for (size_t lane = 0; lane < kLanes; ++lane) sum += lanes[lane];
          return sum;
        },
        [this](size_t row, size_t /*local*/, uint64_t sum) {
          digests[row] = sum;
        });
  }
};

template <typename Target>
void RowDigestsForm(Input x, std::span<uint64_t> digests, Executor& executor) {
  Call<Target> call(executor);
  uint64_t* const results = call.template Room<uint64_t>(digests.size());
  call.Launch(DigestRows{x, results});
  call.Download(results, digests);
}

template <typename Target>
void AddDigestForms(Forms& forms) {
  AddForm(&kernels::RowDigests, &RowDigestsForm<Target>, forms);
}

}  // namespace isoloss::device
