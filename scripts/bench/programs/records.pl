# Strings, arrays and hashes, made and thrown away.
use strict;
use warnings;

my %people;
for my $i (0 .. 69_999) {
    my $name = "name-" . ($i * 7919 % 70_001);
    $people{$name} = {id => $i, tags => [map { "tag-" . ($i % $_) } 3, 5, 7], weight => $i * 0.5};
    delete $people{"name-" . (int($i / 2) * 7919 % 70_001)} if $i % 3 == 0;
}
my %groups;
for my $name (sort keys %people) {
    push @{$groups{$people{$name}{tags}[1]}}, [$people{$name}{weight}, $name];
}
my $text = join ",", map { my $tag = $_; map { "$tag:$_->[1]" } @{$groups{$tag}} } sort keys %groups;
my @words = split /[,:]/, $text;
die if @words < 1000;
