// On a device a router has the bits that it has on the host, and so have
// gathered rows.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "executors.h"
#include "isoloss/base/rng.h"
#include "isoloss/device/emulation.h"
#include "isoloss/kernels/embedding.h"
#include "isoloss/kernels/routing.h"
#include "isoloss/kernels/score_entropy.h"

namespace isoloss::device::routing_forms_test {
namespace {

constexpr size_t kTokens = 37;
constexpr size_t kExperts = 24;
constexpr size_t kSlots = 5;

/// Returns multiples of 1/16 in [0, 1), among which many are equal, with a few
/// NaN.
Matrix<float> Scores(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(5, stream);
  Matrix<float> values(rows, cols);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = rng.Bits(i);
    values.data()[i] =
        bits % 97 == 0 ? std::nanf("") : static_cast<float>(bits % 16) / 16;
  }
  return values;
}

template <typename T>
Matrix<T> In(Memory& memory, const Matrix<T>& values) {
  Matrix<T> copy(memory);
  copy.ResizeUninitialized(values.rows(), values.cols());
  memory.CopyFromHost(values.data(), values.size() * sizeof(T), copy.data());
  return copy;
}

/// Appends the bits of a matrix, those of every NaN being equal.
template <typename T>
void Append(const Matrix<T>& values, std::vector<uint32_t>& bits) {
  const HostRows<T> host(values.view(), values.memory());
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = host.view().data()[i];
    bits.push_back(value == value ? std::bit_cast<uint32_t>(value)
                                  : 0x7FC00000);
  }
}

/// Returns the bits of everything that the functions write.
std::vector<uint32_t> Route(const kernels::RouterRule& rule,
                            Executor& executor) {
  Memory& memory = executor.memory();
  const Matrix<float> scores = In(memory, Scores(kTokens, kExperts, 0));
  const Matrix<float> bias = In(memory, Scores(1, kExperts, 1));
  const Matrix<float> dweights = In(memory, Scores(kTokens, kSlots, 2));
  Matrix<int32_t> ids(memory);
  Matrix<float> weights(memory);
  Matrix<float> dlogits(memory);
  Matrix<float> rows(memory);
  ids.ResizeUninitialized(kTokens, kSlots);
  weights.ResizeUninitialized(kTokens, kSlots);
  dlogits.ResizeUninitialized(kTokens, kExperts);
  rows.ResizeUninitialized(3, kExperts);

  kernels::SelectExperts(rule, scores.view(), {bias.data(), bias.size()},
                         ids.view(), executor);
  kernels::CombineWeights(rule, scores.view(), ids.cview(), weights.view(),
                          executor);
  kernels::RouterScoreBackward(rule, scores.view(), ids.cview(),
                               dweights.view(), dlogits.view(), executor);
  kernels::GatherRows(scores.view(), std::vector<int32_t>{36, 0, 7},
                      rows.view(), executor);
  std::vector<double> entropies(kTokens);
  kernels::ScoreEntropies(scores.view(), entropies, executor);

  std::vector<uint32_t> bits;
  Append(ids, bits);
  Append(weights, bits);
  Append(dlogits, bits);
  Append(rows, bits);
  for (const double entropy : entropies) {
    const auto whole = std::bit_cast<uint64_t>(entropy);
    bits.push_back(std::isnan(entropy) ? 0 : static_cast<uint32_t>(whole));
    bits.push_back(std::isnan(entropy) ? 0
                                       : static_cast<uint32_t>(whole >> 32));
  }
  return bits;
}

TEST(RoutingForms, HaveTheBitsOfTheHost) {
  Executor host(2);
  for (const size_t groups : {0, 4}) {
    for (const bool normalises : {false, true}) {
      for (const bool softmax : {false, true}) {
        const kernels::RouterRule rule = {.groups = groups,
                                          .limited_groups = groups / 2,
                                          .normalises = normalises,
                                          .scale = 2.5f,
                                          .softmax = softmax};
        const std::vector<uint32_t> expected = Route(rule, host);
        for (const NamedExecutor& device : DeviceExecutors()) {
          EXPECT_EQ(Route(rule, *device.executor), expected) << device.name;
        }
      }
    }
  }
}

TEST(EmulationDeathTest, ClosesItsMemoryToTheHost) {
  const auto executor = MakeEmulation(EmulationOrder::kAscending);
  Matrix<float> values(executor->memory());
  values.Resize(2, 2);
  EXPECT_DEATH(values(1, 1) = 1, "");
}

}  // namespace
}  // namespace isoloss::device::routing_forms_test
