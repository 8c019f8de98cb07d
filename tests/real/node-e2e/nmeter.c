/* Stands in for the busybox applet: prints the time with milliseconds, as nmeter -d0 '%3t' does. */
#include <stdio.h>
#include <time.h>

int main(void) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	struct tm *utc = gmtime(&now.tv_sec);
	printf("%02d:%02d:%02d.%03ld\n", utc->tm_hour, utc->tm_min, utc->tm_sec, now.tv_nsec / 1000000);
	return 0;
}
