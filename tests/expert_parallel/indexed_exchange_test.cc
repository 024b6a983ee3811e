// The exchange by indices has the bits and the counts of the exchange between
// ranks: on the host, and on emulated devices whose memory the host can't read.
#include "isoloss/expert_parallel/indexed_exchange.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "device/executors.h"
#include "expert_parallel/exchange_cases.h"
#include "isoloss/base/error.h"
#include "isoloss/expert_parallel/layer_exchanges.h"

namespace isoloss::expert_parallel::indexed_exchange_test {
namespace {

using kernels::Rounding;

constexpr size_t kRowWidth = 200;  // two runs of 128, the second is short
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
Matrix<T> InMemory(Memory& memory, const Matrix<T>& values) {
  Matrix<T> copy{memory};
  copy.CopyFrom(values);
  return copy;
}

Matrix<float> OnHost(Memory& memory, MatrixView<const float> values) {
  const HostRows<float> rows(values, memory);
  Matrix<float> copy(values.rows(), values.cols());
  for (size_t row = 0; row < values.rows(); ++row) {
    std::copy_n(rows.view().Row(row), values.cols(), copy.Row(row));
  }
  return copy;
}

/// Compares bits; signs and payloads of NaN are not defined.
testing::AssertionResult Same(const Matrix<float>& actual,
                              const Matrix<float>& expected) {
  if (actual.rows() != expected.rows() || actual.cols() != expected.cols()) {
    return testing::AssertionFailure()
           << actual.rows() << "x" << actual.cols() << ", not "
           << expected.rows() << "x" << expected.cols();
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const float a = actual.data()[i];
    const float b = expected.data()[i];
    if (std::memcmp(&a, &b, sizeof(float)) == 0) continue;
    if (std::isnan(a) && std::isnan(b)) continue;
    return testing::AssertionFailure()
           << "(" << i / actual.cols() << ", " << i % actual.cols()
           << "): " << a << ", not " << b;
  }
  return testing::AssertionSuccess();
}

/// Holds all that a step gives to an exchange.
struct Given {
  Matrix<float> x;
  Matrix<int32_t> ids;
  Matrix<float> weights;
  Matrix<float> expert_out;
  Matrix<float> dout;
  Matrix<float> row_weight_gradients;
  Matrix<float> dexpert_in;
  Matrix<float> addend;
};

/// Holds all that a step gets from it.
struct Gotten {
  Matrix<float> expert_in;
  Matrix<float> row_weights;
  Matrix<float> out;
  Matrix<float> dexpert_out;
  Matrix<float> dweights;
  Matrix<float> dsource;
};

/// Puts NaN and infinities into some rows.
void AddNonFinite(Matrix<float>& rows) {
  if (rows.rows() < 8) return;
  rows(1, 3) = kNan;
  rows(4, 7) = -kInfinity;
  std::fill_n(rows.Row(6), rows.cols(), kNan);
  std::fill_n(rows.Row(7), rows.cols(), -0.0f);
}

Given GivenTo(const Harness& h) {
  const auto values = [&](size_t rows, uint64_t stream) {
    Matrix<float> m = Values(rows, kRowWidth, stream, h.c.rounding);
    AddNonFinite(m);
    return m;
  };
  const size_t slots = h.c.tokens * h.c.slots;
  Given given;
  given.x = values(h.c.tokens, 1);
  given.ids.CopyFrom(h.ids);
  given.weights.CopyFrom(h.weights);
  given.expert_out = h.InLists(values(slots, 3).view(), kNan);
  given.dout = values(h.c.tokens, 4);
  given.row_weight_gradients =
      h.InLists(Values(slots, 1, 8, Rounding::kFp32).view(), kNan);
  given.dexpert_in = h.InLists(values(slots, 5).view(), kNan);
  given.addend = values(h.c.tokens, 6);
  return given;
}

Gotten Step(const Given& given, Memory& memory, Exchange& exchange) {
  Gotten gotten;
  const auto x = InMemory(memory, given.x);
  const auto ids = InMemory(memory, given.ids);
  const auto weights = InMemory(memory, given.weights);
  exchange.Dispatch(x.view(), ids.view(), weights.view());
  gotten.expert_in = OnHost(memory, exchange.expert_in());
  const size_t rows = exchange.expert_in().rows();
  gotten.row_weights = OnHost(memory, {exchange.row_weights().data(), rows, 1});

  auto expert_out = InMemory(memory, given.expert_out);
  auto out = InMemory(memory, given.x);
  exchange.Combine(expert_out.view(), out.view());
  gotten.out = OnHost(memory, out.view());

  const auto dout = InMemory(memory, given.dout);
  exchange.CombineBackward(dout.view(), expert_out.view());
  gotten.dexpert_out = OnHost(memory, expert_out.view());

  memory.CopyFromHost(given.row_weight_gradients.data(), rows * sizeof(float),
                      exchange.row_weight_gradients().data());
  const auto dexpert_in = InMemory(memory, given.dexpert_in);
  gotten.dweights = OnHost(memory, exchange.ReturnGradients(dexpert_in.view()));

  const auto addend = InMemory(memory, given.addend);
  exchange.DispatchBackward(addend.view(), out.view());
  gotten.dsource = OnHost(memory, out.view());
  return gotten;
}

void ExpectEqualCounts(const Exchange& actual, const Exchange& expected) {
  const auto same = [](auto a, auto b) { return std::ranges::equal(a, b); };
  EXPECT_TRUE(same(actual.expert_begins(), expected.expert_begins()));
  EXPECT_TRUE(same(actual.unit_ends(), expected.unit_ends()));
  EXPECT_TRUE(same(actual.unit_rows(), expected.unit_rows()));
  EXPECT_TRUE(same(actual.tokens_per_expert(), expected.tokens_per_expert()));
  const DispatchCounts& a = actual.counts();
  const DispatchCounts& b = expected.counts();
  EXPECT_EQ(a.assignments, b.assignments);
  EXPECT_EQ(a.dispatch_rows, b.dispatch_rows);
  EXPECT_EQ(a.rank_rows, b.rank_rows);
  EXPECT_EQ(a.node_rows, b.node_rows);
  EXPECT_EQ(a.max_rows_per_rank, b.max_rows_per_rank);
  EXPECT_EQ(a.max_rows_per_expert, b.max_rows_per_expert);
  EXPECT_EQ(a.empty_experts, b.empty_experts);
  EXPECT_EQ(a.padding_rows, b.padding_rows);
}

std::vector<device::NamedExecutor> HostAndDevices() {
  std::vector<device::NamedExecutor> all = device::DeviceExecutors();
  all.push_back({"host", std::make_shared<Executor>(2)});
  return all;
}

/// Holds the exchange of a case in the memory of `executor`.
struct Indexed {
  Indexed(const Harness& h, Executor& executor)
      : transport(transport::MakeTransport(
            "loop", {.ranks = static_cast<int>(h.c.ranks)}, executor)),
        exchange({.topology = h.mesh,
                  .options = h.c.options,
                  .dispatch_units = h.c.units,
                  .rounding = h.c.rounding,
                  .transport = *transport,
                  .executor = executor},
                 0, counters) {
    counters.bytes.Resize(h.c.ranks, h.c.ranks);
  }

  transport::Counters counters;
  std::unique_ptr<transport::Transport> transport;
  IndexedExchange exchange;
};

/// Returns cases of every algorithm, site and order with every payload, on 1 to
/// 64 ranks.
std::vector<Case> AllCases() {
  std::vector<Case> cases = Cases();
  std::erase_if(cases, [](const Case& c) { return c.transport != "loop"; });
  constexpr std::pair<const char*, const char*> kPayloads[] = {
      {"unquantized", "unquantized"},
      {"mx1x32", "e4m3_1x128_pow2"},
      {"e4m3_1x128_fp32", "mx1x32"},
      {"e4m3_1x128_pow2", "e4m3_1x128_fp32"}};
  size_t number = 0;
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRank,
                                    Algorithm::kNode, Algorithm::kTitanBf16}) {
    for (const WeightSite site : {WeightSite::kSource, WeightSite::kExpertOut,
                                  WeightSite::kBeforeFc2}) {
      if (site == WeightSite::kSource && algorithm != Algorithm::kFlat)
        continue;
      for (const size_t ranks : {1, 2, 4, 8, 16, 64}) {
        const auto& [payload, gradient_payload] =
            kPayloads[number % std::size(kPayloads)];
        ExchangeOptions options = With(
            algorithm, site,
            number % 2 == 0 ? CombineOrder::kLastSlot : CombineOrder::kRank);
        options.payload = payload;
        options.gradient_payload = gradient_payload;
        options.padding = number % 5 == 0 ? 16 : 1;
        cases.push_back(
            {.name = fmt::format("number_{}", number),
             .options = options,
             .ranks = ranks,
             .ranks_per_node = 4,
             .replicas = number % 7 == 0 && ranks > 1 ? size_t{2} : size_t{1},
             .units = ranks % 2 == 0 ? size_t{2} : size_t{1},
             .experts = 64,
             .slots = 12,
             .choice = number % 3 == 0 ? Choice::kFewExperts : Choice::kRandom,
             .rounding = number % 4 == 1 ? Rounding::kFp32 : Rounding::kBf16,
             .tokens = 90});
        ++number;
      }
    }
  }
  return cases;
}

class IndexedExchangeTest
    : public testing::TestWithParam<std::tuple<Case, device::NamedExecutor>> {};

TEST_P(IndexedExchangeTest, EqualsTheExchangeBetweenRanks) {
  const auto& [c, place] = GetParam();
  Harness ranked(c);
  Indexed indexed(ranked, *place.executor);
  const Given given = GivenTo(ranked);

  for (int step = 0; step < 2; ++step) {  // memory is reused
    const Gotten expected = Step(given, kHostMemory, ranked.exchange);
    const Gotten gotten =
        Step(given, place.executor->memory(), indexed.exchange);

    EXPECT_TRUE(Same(gotten.expert_in, expected.expert_in));
    EXPECT_TRUE(Same(gotten.row_weights, expected.row_weights));
    EXPECT_TRUE(Same(gotten.out, expected.out));
    EXPECT_TRUE(Same(gotten.dexpert_out, expected.dexpert_out));
    EXPECT_TRUE(Same(gotten.dweights, expected.dweights));
    EXPECT_TRUE(Same(gotten.dsource, expected.dsource));
    ExpectEqualCounts(indexed.exchange, ranked.exchange);
  }
  const transport::Counters counted = ranked.transport->TakeCounters();
  EXPECT_EQ(indexed.counters.messages, counted.messages);
  EXPECT_TRUE(std::equal(counted.bytes.data(),
                         counted.bytes.data() + counted.bytes.size(),
                         indexed.counters.bytes.data()));
  EXPECT_EQ(indexed.transport->TakeCounters().messages, 0);
}

INSTANTIATE_TEST_SUITE_P(Cases, IndexedExchangeTest,
                         testing::Combine(testing::ValuesIn(AllCases()),
                                          testing::ValuesIn(HostAndDevices())),
                         [](const auto& test) {
                           return std::get<0>(test.param).name + "_" +
                                  std::get<1>(test.param).name;
                         });

/// Makes the exchanges of layers on a mesh of four ranks.
class DeviceLayersTest : public testing::Test {
 protected:
  std::unique_ptr<transport::Transport> Transport(const char* name) {
    return transport::MakeTransport(name, {.ranks = 4}, *device_);
  }

  const MeshConfig config_ = {.topology = {.experts = 16, .ranks = 4},
                              .options = With(Algorithm::kRank)};
  const std::shared_ptr<Executor> device_ =
      device::DeviceExecutors().front().executor;
};

TEST_F(DeviceLayersTest, CountWhatTheTransportWouldHaveMoved) {
  const auto transport = Transport("loop");
  LayerExchanges layers(config_, transport.get(), *device_);
  Harness ranked({.name = "",
                  .options = config_.options,
                  .ranks = 4,
                  .ranks_per_node = 8});
  Memory& memory = device_->memory();
  const auto x = InMemory(memory, ranked.x);
  const auto ids = InMemory(memory, ranked.ids);
  const auto weights = InMemory(memory, ranked.weights);
  const auto first = layers.Make(Rounding::kBf16);
  const auto second = layers.Make(Rounding::kBf16);

  for (Exchange* exchange : {first.get(), second.get()}) {
    exchange->Dispatch(x.view(), ids.view(), weights.view());
    ranked.Dispatch();
  }
  layers.CheckConservation();

  const transport::Counters counted = layers.TakeCounters();
  const transport::Counters expected = ranked.transport->TakeCounters();
  EXPECT_EQ(counted.messages, expected.messages);
  EXPECT_TRUE(std::equal(expected.bytes.data(),
                         expected.bytes.data() + expected.bytes.size(),
                         counted.bytes.data()));
  const transport::Counters again = layers.TakeCounters();
  EXPECT_EQ(again.messages, 0);
  EXPECT_TRUE(std::all_of(again.bytes.data(),
                          again.bytes.data() + again.bytes.size(),
                          [](int64_t bytes) { return bytes == 0; }));
}

TEST_F(DeviceLayersTest, RefuseATransportThatMovesRows) {
  const auto transport = Transport("threads");
  try {
    LayerExchanges layers(config_, transport.get(), *device_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(),
                 "transport: `threads` was given, but it moves rows of the "
                 "host's memory, and a run on a device is one process whose "
                 "rows stay on the device. Use the transport `loop`, or run on "
                 "the CPU.");
  }
  Executor host(1);
  LayerExchanges allowed(config_, transport.get(), host);
}

}  // namespace
}  // namespace isoloss::expert_parallel::indexed_exchange_test
