#include "isoloss/stats/binomial_interval.h"

#include <boost/math/distributions/binomial.hpp>

#include "isoloss/base/error.h"

namespace isoloss::stats {
namespace {

using Binomial = boost::math::binomial_distribution<double>;

void CheckArguments(int64_t successes, int64_t trials, double confidence) {
  if (successes < 0 || successes > trials) {
    ThrowError(ErrorKind::kConfig,
               "binomial interval: {} successes of {} trials, but the "
               "successes must lie between 0 and the trials.",
               successes, trials);
  }
  if (!(confidence > 0 && confidence < 1)) {
    ThrowError(ErrorKind::kConfig,
               "binomial interval: confidence is {}, but it must lie in "
               "(0, 1).",
               confidence);
  }
}

double Lower(int64_t successes, int64_t trials, double miss) {
  if (successes == 0) return 0;
  return Binomial::find_lower_bound_on_p(static_cast<double>(trials),
                                         static_cast<double>(successes), miss);
}

double Upper(int64_t successes, int64_t trials, double miss) {
  if (successes == trials) return 1;
  return Binomial::find_upper_bound_on_p(static_cast<double>(trials),
                                         static_cast<double>(successes), miss);
}

}  // namespace

BinomialInterval ClopperPearson(int64_t successes, int64_t trials,
                                double confidence) {
  CheckArguments(successes, trials, confidence);
  const double miss = (1 - confidence) / 2;
  return {.lower = Lower(successes, trials, miss),
          .upper = Upper(successes, trials, miss)};
}

double BinomialUpperBound(int64_t successes, int64_t trials,
                          double confidence) {
  CheckArguments(successes, trials, confidence);
  return Upper(successes, trials, 1 - confidence);
}

}  // namespace isoloss::stats
