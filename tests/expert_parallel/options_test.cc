#include "isoloss/expert_parallel/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "isoloss/base/error.h"

namespace isoloss::expert_parallel::options_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

/// "" if the options are valid.
std::string Complaint(const ExchangeOptions& options) {
  try {
    Validate(options, "exchange:");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(ExchangeOptions, DefaultsAreValid) {
  EXPECT_EQ(Complaint(ExchangeOptions{}), "");
}

TEST(ExchangeOptions, WeightsMeetRowsAtTheSourceOnlyInAFlatExchange) {
  for (const Algorithm algorithm : {Algorithm::kFlat, Algorithm::kRank,
                                    Algorithm::kNode, Algorithm::kTitanBf16}) {
    for (const WeightSite site : {WeightSite::kSource, WeightSite::kExpertOut,
                                  WeightSite::kBeforeFc2}) {
      for (const CombineOrder order :
           {CombineOrder::kRank, CombineOrder::kLastSlot}) {
        ExchangeOptions options;
        options.algorithm = algorithm;
        options.weight_site = site;
        options.order = order;

        const std::string complaint = Complaint(options);

        if (site == WeightSite::kSource && algorithm != Algorithm::kFlat) {
          EXPECT_THAT(complaint,
                      AllOf(StartsWith("exchange: weight_site is `source`"),
                            HasSubstr("Use `expert_out` or `before_fc2`")));
        } else {
          EXPECT_EQ(complaint, "");
        }
      }
    }
  }
}

TEST(ExchangeOptions, RefusalSaysWhatTheAlgorithmNeedsWeightsFor) {
  ExchangeOptions options;
  options.algorithm = Algorithm::kNode;
  EXPECT_THAT(Complaint(options), HasSubstr("adds rows on the expert's rank"));
  options.algorithm = Algorithm::kTitanBf16;
  EXPECT_THAT(Complaint(options), HasSubstr("rounds each weighted row"));
}

TEST(ExchangeOptions, PaddingIsOneOfTheGroupSizesOfARealKernel) {
  for (size_t padding = 0; padding <= 256; ++padding) {
    ExchangeOptions options;
    options.padding = padding;
    const bool known = padding == 1 || padding == 8 || padding == 16 ||
                       padding == 32 || padding == 128;

    const std::string complaint = Complaint(options);

    if (known) {
      EXPECT_EQ(complaint, "") << padding;
    } else {
      EXPECT_EQ(complaint, "exchange: expert_padding is " +
                               std::to_string(padding) +
                               ", but must be one of 1, 8, 16, 32, 128. 1 adds "
                               "no rows.");
    }
  }
}

TEST(ExchangeOptions, UnknownPayloadNamesItsKeyAndTheNearestName) {
  ExchangeOptions options;
  options.payload = "unquantised";
  EXPECT_THAT(Complaint(options),
              AllOf(StartsWith("exchange: payload is `unquantised`"),
                    HasSubstr("Did you mean `unquantized`?")));
  options.payload = "mx1x32";
  EXPECT_EQ(Complaint(options), "");
  options.gradient_payload = "e4m3_1x128_fp23";
  EXPECT_THAT(Complaint(options),
              AllOf(StartsWith("exchange: gradient_payload is"),
                    HasSubstr("Did you mean `e4m3_1x128_fp32`?")));
}

}  // namespace
}  // namespace isoloss::expert_parallel::options_test
