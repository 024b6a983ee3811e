#include "isoloss/stats/fisher_exact.h"

#include <algorithm>
#include <boost/math/distributions/hypergeometric.hpp>
#include <limits>

#include "isoloss/base/error.h"

namespace isoloss::stats {

double FisherExactGreater(int64_t events_a, int64_t trials_a, int64_t events_b,
                          int64_t trials_b) {
  if (!(0 <= events_a && events_a <= trials_a && 0 <= events_b &&
        events_b <= trials_b)) {
    ThrowError(ErrorKind::kConfig,
               "FisherExactGreater: {} events of {} trials and {} of {}, but "
               "events are at least 0 and no more than trials.",
               events_a, trials_a, events_b, trials_b);
  }
  if (trials_a + trials_b > std::numeric_limits<int32_t>::max()) {
    ThrowError(ErrorKind::kConfig,
               "FisherExactGreater: {} trials, but at most 2^31 - 1 are "
               "counted.",
               trials_a + trials_b);
  }
  const int64_t events = events_a + events_b;
  // B can't have more events than trials, so A always has at least this many.
  if (events_a <= std::max<int64_t>(0, events - trials_b)) return 1;
  // `events` of all trials are events, and trials_a are drawn.
  const boost::math::hypergeometric_distribution<double> draw(
      static_cast<unsigned>(events), static_cast<unsigned>(trials_a),
      static_cast<unsigned>(trials_a + trials_b));
  return boost::math::cdf(
      boost::math::complement(draw, static_cast<unsigned>(events_a - 1)));
}

}  // namespace isoloss::stats
